"""The ILP: the words of :mod:`ppopt.constraints` compiled to an integer program through PuLP, solved by CBC or another engine.

PuLP is imported with the first of these that is used. Jobs and their windows need no solver; then come the variables, the
constraints with one method per word, and the objective. :class:`~ppopt.ilp.program.Program` puts them together, and
:func:`solve` solves it.

Two operations of one device stand in one of two orders, a binary for each two whose order is still open. Memory needs no
times: when an operation starts that claims some, its device holds what earlier ones claimed, less what earlier ones gave back,
and "earlier" is what the binaries say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ppopt.interrupt import lazily

if TYPE_CHECKING:
    from ppopt.ilp.engine import MOST, NAME, VERSION, solve
    from ppopt.ilp.engines import check, installed, version_of

__all__ = ["MOST", "NAME", "VERSION", "check", "installed", "solve", "version_of"]

_ENGINE = dict.fromkeys(("MOST", "NAME", "VERSION", "solve"), "engine")
__getattr__ = lazily(__name__, _ENGINE | dict.fromkeys(("check", "installed", "version_of"), "engines"))
