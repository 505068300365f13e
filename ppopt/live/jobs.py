"""A search as a process of its own: its progress as it comes, and its end with the browser that watches it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncGenerator, Sequence
from typing import Any

PATIENCE = 20.0
"""Seconds that a process has to end after SIGTERM, with the best that it has, before it is killed."""
UNWATCHED = 10.0
"""Seconds after which a search ends that nobody watches."""
MOST_OUTPUT = 2**22
"""Most characters that are kept of what a search prints."""


class Job:
    """A command of ppopt on a file, in a folder of its own; ``result`` is what it writes."""

    def __init__(self, number: str, command: Sequence[str], text: str) -> None:
        """``command``: with ``{model}`` and ``{result}`` where the paths of the files stand; ``text`` is the first file's."""
        self.number = number
        self.folder = tempfile.mkdtemp(prefix="ppopt-")
        self._model, self.result = (os.path.join(self.folder, name) for name in ("model.toml", "answer.json"))
        with open(self._model, "w", encoding="utf-8") as file:
            file.write(text)
        self.command = [part.format(model=self._model, result=self.result) for part in command]
        self.output = ""
        self.code: int | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._events: list[dict[str, Any]] = []
        self._more = asyncio.Event()
        self._watchers = 0
        self._watching: asyncio.Task[None] | None = None
        self._run = asyncio.create_task(self._running())

    @property
    def ended(self) -> bool:
        """Whether the process is gone."""
        return self.code is not None

    async def events(self) -> AsyncGenerator[dict[str, Any], None]:
        """What the search says, from the beginning; ends with it. Whoever listens watches it: once nobody does, it is ended."""
        self._watchers += 1
        told = 0
        try:
            while True:
                for event in self._events[told:]:
                    yield event
                    told += 1
                if self.ended:
                    return
                self._more.clear()
                await self._more.wait()
        finally:
            self._watchers -= 1
            if not self._watchers and not self.ended:
                self.stop(kill=True)

    def stop(self, kill: bool = False) -> None:
        """Ask the process to end with the best that it has; ``kill``: nobody wants that any more."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            if kill:
                os.killpg(process.pid, signal.SIGKILL)  # with what it has started itself
            else:
                process.terminate()
        if not kill:
            asyncio.get_running_loop().call_later(PATIENCE, self.stop, True)

    async def close(self) -> None:
        """End the process, and remove its files."""
        self.stop(kill=True)
        with contextlib.suppress(asyncio.CancelledError):
            await self._run
        shutil.rmtree(self.folder, ignore_errors=True)

    async def _running(self) -> None:
        process = self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "ppopt", *self.command),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=MOST_OUTPUT,
            start_new_session=True,
        )
        self._watching = asyncio.create_task(self._unwatched())
        _, _, code = await asyncio.gather(self._progress(process), self._printed(process), process.wait())
        self.code = code
        self._watching.cancel()
        self._more.set()

    async def _unwatched(self) -> None:
        await asyncio.sleep(UNWATCHED)
        if not self._watchers:
            self.stop(kill=True)

    async def _progress(self, process: asyncio.subprocess.Process) -> None:
        """Standard error: JSON objects about the search, and notes."""
        assert process.stderr is not None, "a pipe"
        async for line in process.stderr:
            text = line.decode(errors="replace").strip()
            if text:
                self._tell(self._named(text))

    def _tell(self, text: str) -> None:
        try:
            tree = json.loads(text)
        except ValueError:
            tree = None
        if isinstance(tree, dict) and {"value", "bound"} <= tree.keys():
            self._events.append({"kind": "progress", **tree})
        else:
            self._events.append({"kind": "note", "text": text})
        self._more.set()

    async def _printed(self, process: asyncio.subprocess.Process) -> None:
        """Standard output, as far as anybody would read it."""
        assert process.stdout is not None, "a pipe"
        kept = b""
        while chunk := await process.stdout.read(2**16):
            kept += chunk[: MOST_OUTPUT - len(kept)]
        self.output = self._named(kept.decode(errors="replace"))

    def _named(self, text: str) -> str:
        """A text that the process said, with the form in place of the file."""
        return text.replace(self._model, "form")
