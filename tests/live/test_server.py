"""The server of the form: who may ask, for how much, and what becomes of a search."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import re
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ppopt.live.form import EXAMPLE, shown
from tests.support.hard import HARD
from tests.support.tiers import thorough

if importlib.util.find_spec("tornado") is None and not os.environ.get("CI"):
    pytest.skip("there is no tornado", allow_module_level=True)

from tornado.httpclient import AsyncHTTPClient, HTTPClientError, HTTPRequest

from ppopt.live.handlers import MOST_BYTES
from ppopt.live.jobs import Job
from ppopt.live.server import Running


class Client:
    """A browser without a screen."""

    def __init__(self, running: Running) -> None:
        self.running = running
        self.http = AsyncHTTPClient(force_instance=True)

    async def get(self, path: str, **headers: str) -> tuple[int, str]:
        return await self.ask("GET", path, None, headers)

    async def post(self, path: str, body: Any, token: str | None = "", **headers: str) -> tuple[int, dict[str, Any]]:
        given = self.running.state.token if token == "" else token
        sent = {**headers, **({} if given is None else {"X-Ppopt-Token": given})}
        status, text = await self.ask("POST", path, json.dumps(body), sent)
        return status, json.loads(text) if text.startswith("{") else {"error": text}

    async def ask(self, method: str, path: str, body: str | None, headers: dict[str, str]) -> tuple[int, str]:
        url = self.running.address + path.lstrip("/")
        request = HTTPRequest(url, method, headers, body, request_timeout=300, connect_timeout=60)
        try:
            answer = await self.http.fetch(request, raise_error=False)
        except (HTTPClientError, OSError) as error:
            return 599, str(error)
        return answer.code, answer.body.decode()


def served(test: Callable[[Client], Awaitable[None]]) -> None:
    """A test with a server of its own."""

    async def run() -> None:
        running = Running(EXAMPLE, 0)
        try:
            await test(Client(running))
        finally:
            await running.close()

    asyncio.run(run())


def asked(**fields: str) -> dict[str, Any]:
    given = shown(EXAMPLE)
    return {**given, "fields": {**given["fields"], **{key.replace("__", "."): text for key, text in fields.items()}}}


def test_it_listens_on_this_machine_alone() -> None:
    async def test(client: Client) -> None:
        assert [socket.getsockname()[0] for socket in client.running.sockets] == ["127.0.0.1"]
        status, text = await client.get("/")
        assert status == 200
        assert client.running.state.token in text
        assert "http:" not in text.replace("http://127.0.0.1", "")
        for name, kind in (("form.js", "use strict"), ("form.css", "color-scheme")):
            status, text = await client.get(f"/{name}")
            assert (status, kind in text) == (200, True)
        assert (await client.get("/nowhere"))[0] == 404

    served(test)


def test_another_host_another_site_and_no_token_are_refused() -> None:
    async def test(client: Client) -> None:
        for host in ("evil.example", "evil.example:80", f"127.0.0.1:{client.running.port + 1}", ""):
            assert (await client.get("/", Host=host))[0] in (400, 403)
        assert (await client.get("/", Host=f"localhost:{client.running.port}"))[0] == 200
        assert (await client.get("/", Origin="http://evil.example"))[0] == 403
        for path in ("/compare", "/solve", "/plan", "/stop", "/model"):
            for token in (None, "wrong", "é"):
                assert (await client.post(path, asked(), token))[0] in (400, 403)
            assert (await client.post(path, asked(), Origin="http://evil.example"))[0] == 403
        assert client.running.state.job is None
        assert not client.running.state.pages

    served(test)


def test_large_bodies_are_refused() -> None:
    async def test(client: Client) -> None:
        status, _ = await client.post("/model", {"toml": " " * MOST_BYTES})
        assert status in (400, 413, 599)  # the connection is closed before the body is read
        assert (await client.post("/model", {"toml": "# " + "x" * (MOST_BYTES // 2)}))[0] == 200

    served(test)


def test_what_is_wrong_names_its_field() -> None:
    async def test(client: Client) -> None:
        cases = [
            ("/compare", asked(costs__forward="1, 2"), "costs.forward"),
            ("/solve", {**asked(), "seconds": 0, "objective": "makespan"}, "seconds"),
            ("/solve", {**asked(), "seconds": 1e9, "objective": "makespan"}, "seconds"),
            ("/solve", {**asked(), "seconds": 1, "objective": "speed"}, "objective"),
            ("/solve", {**asked(memory__limit="0.1"), "seconds": 1, "objective": "makespan"}, "memory.limit"),
            ("/plan", {"plan": 3, "seconds": 1}, "plan"),
            ("/model", {"toml": "not toml"}, ""),
        ]
        for path, body, key in cases:
            status, answer = await client.post(path, body)
            assert status == 422, (path, answer)
            assert answer["key"] == key
        assert "expected one number or a list of 4" in (await client.post("/compare", cases[0][1]))[1]["error"]
        for body in ("[]", "3", "nonsense"):
            headers = {"X-Ppopt-Token": client.running.state.token}
            assert (await client.ask("POST", "/compare", body, headers))[0] == 400

    served(test)


def test_the_model_can_be_saved_and_read() -> None:
    async def test(client: Client) -> None:
        status, answer = await client.post("/model", asked(memory__limit="7"))
        assert status == 200
        assert "limit = 7" in answer["toml"]
        status, back = await client.post("/model", {"toml": answer["toml"]})
        assert (status, back["fields"]["memory.limit"]) == (200, "7")

    served(test)


@thorough
def test_restrictions_are_said_beside_the_charts_that_exist() -> None:
    async def test(client: Client) -> None:
        names = ["1f1b", "dualpipe", "zb-h1"]
        body = {**asked(pipeline__microbatches="6"), "schedules": names}
        status, answer = await client.post("/compare", body)
        assert status == 200
        assert any(message.startswith("dualpipe: ") for message in answer["messages"])
        status, text = await client.get(answer["page"])
        assert status == 200
        titles = [chart["title"] for chart in json.loads(re.search(r'id="facts"[^>]*>(.*?)</script>', text)[1])["charts"]]  # type: ignore[index]
        assert sorted(titles) == ["1f1b", "zb-h1"]
        assert (await client.post("/compare", {**asked(), "schedules": []}))[1]["messages"] == ["no schedule is chosen"]
        status, answer = await client.post("/compare", {**asked(), "schedules": ["nothing"]})
        assert (status, "nothing" in answer["error"]) == (422, True)

    served(test)


async def heard(client: Client, job: str, until: Callable[[dict[str, Any]], bool]) -> tuple[list[dict[str, Any]], Any]:
    """The events of a search up to one, and the connection, which stays open."""
    reader, writer = await asyncio.open_connection("127.0.0.1", client.running.port)
    host = f"127.0.0.1:{client.running.port}"
    writer.write(f"GET /events/{job} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    events = []
    while line := await reader.readline():
        if line.startswith(b"data: "):
            events.append(json.loads(line[6:]))
            if until(events[-1]):
                break
    return events, writer


async def gone(job: Job) -> None:
    """Wait until the process of a search has ended."""
    for _ in range(1200):
        if job.ended:
            return
        await asyncio.sleep(0.1)
    raise AssertionError("the process goes on")


@thorough
def test_a_second_search_is_refused_and_stop_keeps_the_best() -> None:
    async def test(client: Client) -> None:
        body = {**asked(**HARD), "seconds": 600, "objective": "makespan", "schedules": ["1f1b"]}
        status, answer = await client.post("/solve", body)
        assert status == 200
        events, writer = await heard(client, answer["job"], lambda event: bool(event.get("value")))
        assert {"value", "bound", "seconds"} <= events[-1].keys()
        status, second = await client.post("/solve", body)
        assert (status, "a search is running" in second["error"]) == (409, True)
        assert (await client.post("/plan", {"plan": "", "seconds": 1}))[0] == 409
        ending = asyncio.create_task(heard(client, answer["job"], lambda event: event["kind"] == "end"))
        await asyncio.sleep(0.2)
        assert (await client.post("/stop", {}))[0] == 200
        events, second_writer = await ending
        second_writer.close()
        await second_writer.wait_closed()
        end = events[-1]
        assert end["code"] == 0
        assert "interrupted" in end["output"]
        status, text = await client.get(end["page"])
        assert "best found, gap" in text
        writer.close()
        await writer.wait_closed()
        assert (await client.get("/events/nothing"))[0] == 404

    served(test)


@thorough
def test_a_search_ends_with_the_tab_that_watches_it() -> None:
    async def test(client: Client) -> None:
        body = {**asked(**HARD), "seconds": 600, "objective": "makespan", "schedules": []}
        _, answer = await client.post("/solve", body)
        job = client.running.state.job
        assert job is not None
        _, writer = await heard(client, answer["job"], lambda event: True)
        assert not job.ended
        writer.close()
        await writer.wait_closed()
        await gone(job)
        assert job.code is not None
        assert job.code < 0
        assert (await client.post("/solve", {**body, "seconds": 1}))[0] == 200  # and another may begin

    served(test)


@thorough
def test_a_search_that_nobody_watches_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    from ppopt.live import jobs

    monkeypatch.setattr(jobs, "UNWATCHED", 0.5)

    async def test(client: Client) -> None:
        await client.post("/solve", {**asked(**HARD), "seconds": 600, "objective": "makespan", "schedules": []})
        assert client.running.state.job is not None
        await gone(client.running.state.job)

    served(test)
