"""The server of the live form: this machine alone, one search at a time, and nothing that another site could ask for."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import secrets
import signal
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib import resources
from typing import Any

from tornado.httpserver import HTTPServer
from tornado.iostream import StreamClosedError
from tornado.netutil import bind_sockets
from tornado.web import Application, HTTPError, RequestHandler

from ppopt.files import ModelError, read_result
from ppopt.files.model import tree_of_text
from ppopt.live.answers import Answer, compared, solved
from ppopt.live.form import GROUPS, LAYER, PLAN, SOURCE, Given, model_in, shown, text_in
from ppopt.live.jobs import Job
from ppopt.named import NAMED
from ppopt.pictures.page.document import inside

HOST = "127.0.0.1"
MOST_BYTES = 1_000_000
"""Largest body of a request."""
PAGES = 8
"""How many pages are kept."""
MOST_SECONDS = 3600.0
"""Longest search."""
ALIVE = 10.0
"""Seconds after which a stream of events says something, so that a browser that is gone is noticed."""
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; frame-src 'self'; img-src 'self' data:; "
        "form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
FRAMED = "sandbox allow-scripts allow-modals allow-downloads; frame-ancestors 'self'"
"""What pages in the frame may do: nothing with the form around them."""


class State:
    """What a server has: its token, the model that it began with, the pages, and the search that runs."""

    def __init__(self, tree: Mapping[str, Any]) -> None:
        self.token = secrets.token_urlsafe(24)
        self.tree = tree
        self.pages: OrderedDict[str, str] = OrderedDict()
        self.job: Job | None = None
        self.asked: dict[str, Callable[[Job], dict[str, Any]]] = {}
        self.threads = ThreadPoolExecutor(1)
        self.hosts: tuple[str, ...] = ()

    def keep(self, text: str) -> str:
        """Keep a page; its address."""
        name = secrets.token_urlsafe(12)
        self.pages[name] = text
        while len(self.pages) > PAGES:
            self.pages.popitem(last=False)
        return f"/page/{name}"

    async def close(self) -> None:
        """End the search that runs."""
        if self.job is not None:
            await self.job.close()


class _Handler(RequestHandler):
    """What all requests have to be: from this machine by its own name and, where they ask for something, with the token."""

    state: State

    def initialize(self, state: State) -> None:
        self.state = state

    def set_default_headers(self) -> None:
        for name, value in HEADERS.items():
            self.set_header(name, value)
        self.clear_header("Server")

    def prepare(self) -> None:
        if self.request.headers.get("Host", "") not in self.state.hosts:
            raise HTTPError(403, reason="This server answers to 127.0.0.1 alone")
        origin = self.request.headers.get("Origin")
        if origin is not None and origin.removeprefix("http://") not in self.state.hosts:
            raise HTTPError(403, reason="Another site asks")
        if self.request.method == "POST":
            given = self.request.headers.get("X-Ppopt-Token", "")
            if not hmac.compare_digest(given.encode(), self.state.token.encode()):
                raise HTTPError(403, reason="The token of the form is missing")
            if len(self.request.body) > MOST_BYTES:
                raise HTTPError(413)

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        self.finish({"error": self._reason})

    def read(self) -> dict[str, Any]:
        """The body as a table of JSON.

        Raises:
            HTTPError: it is none.
        """
        try:
            tree = json.loads(self.request.body)
        except (ValueError, RecursionError):
            tree = None
        if not isinstance(tree, dict):
            raise HTTPError(400, reason="Expected JSON")
        return tree

    def refuse(self, error: ValueError, status: int = 422) -> None:
        """Say what is wrong, and in which field."""
        self.set_status(status)
        key = error.key if isinstance(error, ModelError) else ""
        self.finish({"error": str(error).removeprefix(f"{SOURCE}: "), "key": key})

    async def threaded(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """What takes a while, while the server goes on."""
        return await asyncio.get_running_loop().run_in_executor(self.state.threads, work, *arguments)


class _Form(_Handler):
    """The form itself."""

    def get(self) -> None:
        fields = {title: [field._asdict() for field in group] for title, group in GROUPS.items()}
        known = {
            "token": self.state.token,
            "groups": fields,
            "layer": LAYER,
            "given": shown(self.state.tree),
            "schedules": [definition.name for definition in NAMED.values()],
            "chosen": _chosen(self.state.tree),
            "plan": PLAN,
            "seconds": MOST_SECONDS,
        }
        self.set_header("Content-Type", "text/html; charset=utf-8")
        self.finish(_read("form.html").replace("@known@", inside(known)))


def _chosen(tree: Mapping[str, Any]) -> list[str]:
    """The schedules that are ticked at the beginning."""
    pipeline = tree.get("pipeline", {})
    own = [pipeline["schedule"]] if isinstance(pipeline, Mapping) and "schedule" in pipeline else []
    return list(dict.fromkeys([*own, "1f1b", "interleaved-1f1b", "zb-h1", "zb-v", "dualpipe"]))


class _File(_Handler):
    """The script and the style of the form."""

    def get(self, name: str) -> None:
        kind = {"js": "text/javascript", "css": "text/css"}[name.rpartition(".")[2]]
        self.set_header("Content-Type", f"{kind}; charset=utf-8")
        self.finish(_read(name))


class _Page(_Handler):
    """A page, for the frame; or to be kept."""

    def get(self, name: str) -> None:
        text = self.state.pages.get(name)
        if text is None:
            raise HTTPError(404, reason="This page is gone; ask again")
        self.set_header("Content-Type", "text/html; charset=utf-8")
        self.set_header("Content-Security-Policy", FRAMED)
        if self.get_query_argument("download", None) is not None:
            self.set_header("Content-Disposition", 'attachment; filename="ppopt.html"')
        self.finish(text)


class _Model(_Handler):
    """The model file that the form says; or what the form shows of one."""

    def post(self) -> None:
        asked = self.read()
        try:
            if "toml" in asked:
                text = asked["toml"]
                if not isinstance(text, str):
                    raise HTTPError(400, reason="Expected a text")
                self.finish(shown(tree_of_text(text, "the file")))
            else:
                given = Given.of(asked)
                model_in(given)
                self.finish({"toml": text_in(given)})
        except ValueError as error:
            self.refuse(error)


class _Compare(_Handler):
    """Named schedules side by side."""

    async def post(self) -> None:
        asked = self.read()
        try:
            model = model_in(Given.of(asked))
            answer = await self.threaded(compared, model, _names(asked), bool(asked.get("memory")))
        except ValueError as error:
            self.refuse(error)
            return
        self.finish(_answered(self.state, answer))


class _Begin(_Handler):
    """A search begins; one at a time."""

    async def post(self, what: str) -> None:
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


class _Stop(_Handler):
    """The search ends, with the best that it has."""

    def post(self) -> None:
        if self.state.job is not None:
            self.state.job.stop()
        self.finish({})


class _Events(_Handler):
    """What a search says, as it comes, and its answer. When the browser is gone, the search ends."""

    async def get(self, number: str) -> None:
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


def _names(asked: Mapping[str, Any]) -> list[str]:
    names = asked.get("schedules", [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ModelError(SOURCE, "schedules", "expected a list of names")
    return names


def _seconds(asked: Mapping[str, Any]) -> float:
    seconds = asked.get("seconds")
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= MOST_SECONDS:
        raise ModelError(SOURCE, "seconds", f"expected a number of seconds > 0 and <= {MOST_SECONDS:g}, got {seconds!r}")
    return float(seconds)


def _solve(state: State, asked: Mapping[str, Any]) -> tuple[list[str], str, Callable[[Job], dict[str, Any]]]:
    """The command of a search, its model file, and what makes an answer of its result."""
    given, names, memory = Given.of(asked), _names(asked), bool(asked.get("memory"))
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
        return {**_answered(state, found), "output": job.output, "code": job.code}

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
        return {**_answered(state, found), "output": job.output, "code": job.code}

    return command, text, answer


def _answered(state: State, answer: Answer) -> dict[str, Any]:
    return {"page": None if answer.page is None else state.keep(answer.page), "messages": answer.messages}


def _read(name: str) -> str:
    return resources.files("ppopt.live").joinpath(name).read_text(encoding="utf-8")


def application(state: State) -> Application:
    """The server without its sockets."""
    given = {"state": state}
    return Application(
        [
            (r"/", _Form, given),
            (r"/(form\.(?:js|css))", _File, given),
            (r"/page/([\w-]+)", _Page, given),
            (r"/model", _Model, given),
            (r"/compare", _Compare, given),
            (r"/(solve|plan)", _Begin, given),
            (r"/stop", _Stop, given),
            (r"/events/([\w-]+)", _Events, given),
            (r"/.*", _Missing, given),
        ],
        log_function=lambda handler: None,
    )


class _Missing(_Handler):
    """Anything else."""

    def get(self) -> None:
        raise HTTPError(404, reason="There is no such page")

    def post(self) -> None:
        raise HTTPError(404, reason="There is no such page")


class Running:
    """A server that listens on 127.0.0.1."""

    def __init__(self, tree: Mapping[str, Any], port: int) -> None:
        """``tree``: what the form begins with. Port 0: one that is free.

        Raises:
            OSError: the port cannot be had.
        """
        self.state = State(tree)
        self.sockets = bind_sockets(port, HOST)
        self.port = self.sockets[0].getsockname()[1]
        self.address = f"http://{HOST}:{self.port}/"
        self.state.hosts = tuple(f"{name}:{self.port}" for name in (HOST, "localhost"))
        self._server = HTTPServer(application(self.state), max_body_size=MOST_BYTES, max_buffer_size=2 * MOST_BYTES)
        self._server.add_sockets(self.sockets)

    async def close(self) -> None:
        """End it, and the search that runs."""
        self._server.stop()
        await self._server.close_all_connections()
        await self.state.close()
        self.state.threads.shutdown(wait=False, cancel_futures=True)


async def serve(tree: Mapping[str, Any], port: int, ready: Callable[[str], None]) -> None:
    """Serve the form until a signal comes; ``ready`` gets its address.

    Raises:
        OSError: the port cannot be had.
    """
    running = Running(tree, port)
    over = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, over.set)
    try:
        ready(running.address)
        await over.wait()
    finally:
        await running.close()
