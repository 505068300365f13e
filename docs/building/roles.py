"""Docstrings refer to each other as Sphinx does, ``:class:`~ppopt.op.Kind```; here these become links of the site."""

from __future__ import annotations

import re
from html import escape
from typing import Any

import griffe

ROLE = re.compile(r":(?:class|func|meth|attr|mod|data|exc):`(~?)([\w.]+)`")

LITERAL = re.compile(r"::$", re.MULTILINE)
"""What stands before a literal block, which Markdown knows by its margin."""


class Roles(griffe.Extension):
    """Roles become links to what they name, or mere code where the site has no page of that."""

    def on_instance(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Rewrite the docstring of ``obj``."""
        if obj.docstring is not None:
            text = ROLE.sub(lambda role: link(obj, role[2], bool(role[1])), obj.docstring.value)
            obj.docstring.value = LITERAL.sub(":", text)


def link(obj: griffe.Object, name: str, short: bool) -> str:
    """A link from the docstring of ``obj``; ``short``: only the last part of the name is shown."""
    shown = name.rpartition(".")[2] if short else name
    return f'<autoref optional identifier="{escape(path_of(obj, name))}"><code>{escape(shown)}</code></autoref>'


def path_of(obj: griffe.Object, name: str) -> str:
    """The full path of a name that stands in the docstring of ``obj``: whole, or known where ``obj`` is, or in its module."""
    if name.startswith("ppopt."):
        return name
    first, _, rest = name.partition(".")
    try:
        found = obj.resolve(first)
    except griffe.NameResolutionError:
        return name
    return f"{found}.{rest}" if rest else found
