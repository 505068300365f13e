"""What every request has to be, and the answers that need no search: the form, pages, models, named schedules side by side."""

from __future__ import annotations

import asyncio
import hmac
import json
import secrets
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib import resources
from typing import Any

from tornado.web import HTTPError, RequestHandler

from ppopt.files import ModelError
from ppopt.files.model import tree_of_text
from ppopt.live.answers import Answer, compared
from ppopt.live.form import GROUPS, LAYER, PLAN, SOURCE, Given, model_in, shown, text_in
from ppopt.live.jobs import Job
from ppopt.named import NAMED
from ppopt.pictures.page.document import inside

MOST_BYTES = 1_000_000
"""Largest body of a request."""
PAGES = 8
"""How many pages are kept."""
MOST_SECONDS = 3600.0
"""Longest search."""
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


class Handler(RequestHandler):
    """What all requests have to be: from this machine by its own name and, where they ask for something, with the token."""

    state: State

    def initialize(self, state: State) -> None:
        """Tornado calls it with what the application has."""
        self.state = state

    def set_default_headers(self) -> None:
        """Nothing may be kept, framed, or loaded from elsewhere."""
        for name, value in HEADERS.items():
            self.set_header(name, value)
        self.clear_header("Server")

    def prepare(self) -> None:
        """Look at the request before anything else is done.

        Raises:
            HTTPError: it comes from elsewhere, has no token, or is too large.
        """
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
        """What is wrong, as JSON."""
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


class Form(Handler):
    """The form itself."""

    def get(self) -> None:
        """Answer a GET."""
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


class File(Handler):
    """The script and the style of the form."""

    def get(self, name: str) -> None:
        """Answer a GET."""
        kind = {"js": "text/javascript", "css": "text/css"}[name.rpartition(".")[2]]
        self.set_header("Content-Type", f"{kind}; charset=utf-8")
        self.finish(_read(name))


class Page(Handler):
    """A page, for the frame; or to be kept."""

    def get(self, name: str) -> None:
        """Answer a GET."""
        text = self.state.pages.get(name)
        if text is None:
            raise HTTPError(404, reason="This page is gone; ask again")
        self.set_header("Content-Type", "text/html; charset=utf-8")
        self.set_header("Content-Security-Policy", FRAMED)
        if self.get_query_argument("download", None) is not None:
            self.set_header("Content-Disposition", 'attachment; filename="ppopt.html"')
        self.finish(text)


class Model(Handler):
    """The model file that the form says; or what the form shows of one."""

    def post(self) -> None:
        """Answer a POST."""
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


class Compare(Handler):
    """Named schedules side by side."""

    async def post(self) -> None:
        """Answer a POST."""
        asked = self.read()
        try:
            model = model_in(Given.of(asked))
            answer = await self.threaded(compared, model, names_in(asked), bool(asked.get("memory")))
        except ValueError as error:
            self.refuse(error)
            return
        self.finish(answered(self.state, answer))


class Missing(Handler):
    """Anything else."""

    def get(self) -> None:
        """Answer a GET."""
        raise HTTPError(404, reason="There is no such page")

    def post(self) -> None:
        """Answer a POST."""
        raise HTTPError(404, reason="There is no such page")


def names_in(asked: Mapping[str, Any]) -> list[str]:
    """The names of schedules that are asked for.

    Raises:
        ModelError: it is no list of names.
    """
    names = asked.get("schedules", [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ModelError(SOURCE, "schedules", "expected a list of names")
    return names


def answered(state: State, answer: Answer) -> dict[str, Any]:
    """An answer as the browser gets it; its page is kept."""
    return {"page": None if answer.page is None else state.keep(answer.page), "messages": answer.messages}


def _read(name: str) -> str:
    return resources.files("ppopt.live").joinpath(name).read_text(encoding="utf-8")
