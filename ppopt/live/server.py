"""The server of the live form: this machine alone, one search at a time, and nothing that another site could ask for."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Mapping
from typing import Any

from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application

from ppopt.live.handlers import MOST_BYTES, Compare, File, Form, Missing, Model, Page, State
from ppopt.live.searches import Begin, Events, Stop

HOST = "127.0.0.1"


def application(state: State) -> Application:
    """The server without its sockets."""
    given = {"state": state}
    return Application(
        [
            (r"/", Form, given),
            (r"/(form\.(?:js|css))", File, given),
            (r"/page/([\w-]+)", Page, given),
            (r"/model", Model, given),
            (r"/compare", Compare, given),
            (r"/(solve|plan)", Begin, given),
            (r"/stop", Stop, given),
            (r"/events/([\w-]+)", Events, given),
            (r"/.*", Missing, given),
        ],
        log_function=lambda handler: None,
    )


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
