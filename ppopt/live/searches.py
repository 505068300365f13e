"""Searches and plans: they begin, say how they go, are stopped, and answer."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
from collections.abc import Callable, Mapping
from typing import Any

from tornado.iostream import StreamClosedError
from tornado.web import HTTPError

from ppopt.files import ModelError, read_result
from ppopt.files.model import tree_of_text
from ppopt.live.answers import solved
from ppopt.live.form import SOURCE, Given, model_in, text_in
from ppopt.live.handlers import MOST_SECONDS, Handler, State, answered, names_in
from ppopt.live.jobs import Job

ALIVE = 10.0
"""Seconds after which a stream of events says something, so that a browser that is gone is noticed."""


class Begin(Handler):
    """A search begins; one at a time."""

    async def post(self, what: str) -> None:
        """Begin a search or a plan."""
        job = self.state.job
        if job is not None and not job.ended:
            self.refuse(ValueError("a search is running; stop it first, or wait for its end"), 409)
            return
        asked = self.read()
        try:
            command, text, answer = (_solve if what == "solve" else _plan)(self.state, asked)
        except ValueError as error:
            self.refuse(error)
            return
        if job is not None:
            await job.close()
        number = secrets.token_urlsafe(12)
        self.state.job = Job(number, command, text)
        self.state.asked = {number: answer}
        self.finish({"job": number})


class Stop(Handler):
    """The search ends, with the best that it has."""

    def post(self) -> None:
        """Answer a POST."""
        if self.state.job is not None:
            self.state.job.stop()
        self.finish({})


class Events(Handler):
    """What a search says, as it comes, and its answer. When the browser is gone, the search ends."""

    async def get(self, number: str) -> None:
        """Events as they come (server-sent events)."""
        job = self.state.job
        if job is None or job.number != number:
            raise HTTPError(404, reason="There is no such search")
        self.set_header("Content-Type", "text/event-stream")
        events = job.events()
        alive = asyncio.create_task(self._alive())
        try:
            async for event in events:
                await self._say(event)
            answer = await self.threaded(self.state.asked[number], job)
            await self._say({"kind": "end", **answer})
        except StreamClosedError:
            pass
        finally:
            alive.cancel()
            await events.aclose()

    def on_connection_close(self) -> None:
        """The tab is gone, and the search with it."""
        if self.state.job is not None and not self.state.job.ended:
            self.state.job.stop(kill=True)

    async def _alive(self) -> None:
        with contextlib.suppress(StreamClosedError):
            while True:
                await asyncio.sleep(ALIVE)
                self.write(": still here\n\n")
                await self.flush()

    async def _say(self, event: Mapping[str, Any]) -> None:
        self.write(f"data: {json.dumps(event)}\n\n")
        await self.flush()


def _seconds(asked: Mapping[str, Any]) -> float:
    seconds = asked.get("seconds")
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= MOST_SECONDS:
        raise ModelError(SOURCE, "seconds", f"expected a number of seconds > 0 and <= {MOST_SECONDS:g}, got {seconds!r}")
    return float(seconds)


def _solve(state: State, asked: Mapping[str, Any]) -> tuple[list[str], str, Callable[[Job], dict[str, Any]]]:
    """The command of a search, its model file, and what makes an answer of its result."""
    given, names, memory = Given.of(asked), names_in(asked), bool(asked.get("memory"))
    model_in(given)
    objective = asked.get("objective")
    if objective not in ("makespan", "span"):
        raise ModelError(SOURCE, "objective", f"expected makespan or span, got {objective!r}")
    command = ["solve", "{model}", "-o", "{result}", "--time-limit", f"{_seconds(asked):g}", "--objective", objective]

    def answer(job: Job) -> dict[str, Any]:
        try:
            if read_result(job.result).schedule is None:
                return {"page": None, "messages": [], "output": job.output, "code": job.code}
            found = solved(job.result, names, memory)
        except (ValueError, OSError):
            return {"page": None, "messages": [], "output": job.output, "code": job.code}
        return {**answered(state, found), "output": job.output, "code": job.code}

    return [*command, "--progress", "json"], text_in(given), answer


def _plan(state: State, asked: Mapping[str, Any]) -> tuple[list[str], str, Callable[[Job], dict[str, Any]]]:
    """The same of a plan."""
    text, memory = asked.get("plan"), bool(asked.get("memory"))
    if not isinstance(text, str):
        raise ModelError(SOURCE, "plan", "expected a text")
    tree_of_text(text, f"{SOURCE}: plan")
    command = ["plan", "{model}", "-o", "{result}", "--time-limit", f"{_seconds(asked):g}", "--progress", "json"]

    def answer(job: Job) -> dict[str, Any]:
        try:
            found = solved(job.result, [], memory)
        except (ValueError, OSError):
            return {"page": None, "messages": [], "output": job.output, "code": job.code}
        return {**answered(state, found), "output": job.output, "code": job.code}

    return command, text, answer
