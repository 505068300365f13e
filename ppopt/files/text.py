"""Text files whole or not at all: read with a limit, written through a temporary file."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys

MAX_BYTES = 2**30
"""Largest file that is read, in bytes."""


class FileError(ValueError):
    """A file that cannot be read or written, and why; for one that cannot be read the message does not name it."""


def source_of(path: str) -> str:
    """How messages name a path: ``-`` is standard input."""
    return "<stdin>" if path == "-" else path


def read_text(path: str) -> str:
    """The text of a file or, for ``-``, of standard input.

    Raises:
        FileError: it cannot be read, is larger than :data:`MAX_BYTES`, or is not UTF-8.
    """
    try:
        if path == "-":
            data = sys.stdin.buffer.read(MAX_BYTES + 1)
        else:
            with open(path, "rb") as file:
                data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        raise FileError(f"cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if len(data) > MAX_BYTES:
        raise FileError(f"is larger than {MAX_BYTES} bytes, the most that is read")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise FileError(f"is not UTF-8 text (line {line})") from None


def write_text(path: str, text: str) -> None:
    """Write a file whole or leave what was there before; pipes and devices are written to as they are.

    Raises:
        FileError: it cannot be written.
    """
    target = os.path.realpath(path)
    try:
        if os.path.exists(target) and not os.path.isfile(target):
            with open(target, "w", encoding="utf-8", newline="") as file:
                file.write(text)
            return
        folder, name = os.path.split(target)
        temporary = os.path.join(folder, f".{name}.{os.getpid()}.tmp")
        try:
            with open(temporary, "x", encoding="utf-8", newline="") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            if os.path.exists(target):
                shutil.copymode(target, temporary)
            os.replace(temporary, target)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.remove(temporary)
            raise
    except OSError as error:
        raise FileError(f"{path}: cannot be written: {error.strerror or error}") from None
