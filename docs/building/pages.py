"""Pages of the site that are made from files elsewhere in the tree: the home page, contributing, changes, and the API."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

ROOT = Path(__file__).parents[2]
PAGES = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
"""Files beside the folder docs, and the pages that they become."""
ROOMS = {
    "op": (),
    "pipeline": (),
    "sequences": (),
    "transformer": ("calibration", "configs", "parameters", "flops", "activations", "states", "traffic", "times"),
    "layouts": (),
    "constraints": (),
    "schedule": (),
    "timing": (),
    "heuristics": (),
    "checker": (),
    "named": (),
    "perceptron": (),
    "clock": (),
    "compiled": (),
    "cpsat": (),
    "ilp": (),
    "bounds": (),
    "periodic": (),
    "search": ("strategies", "tuning"),
    "files": (),
    "runs": ("clocks", "beside"),
    "study": ("buying", "frontier", "plan", "planning", "store", "sweep"),
    "pictures": ("curves", "figure", "frontier", "gantt", "memory", "plot", "shown", "text"),
    "live": ("form", "answers"),
}
"""The rooms of the table in docs/api.md, and their modules that are public as a whole."""


OUTSIDE = {
    "*.html": re.compile(r"<(?:script|link|img|iframe|source|object)\b[^>]*\b(?:src|href|srcset|data)=[\"']?(?:https?:)?//"),
    "*.css": re.compile(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//[^)\s]*"),
}
"""What a page would fetch from elsewhere."""


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages."""
    for file, page in PAGES.items():
        files.append(File.generated(config, page, content=moved((ROOT / file).read_text(encoding="utf-8"))))
    files.append(File.generated(config, "reference/ppopt.md", content=reference("ppopt")))
    for room, modules in ROOMS.items():
        parts = [reference(f"ppopt.{room}"), *(reference(f"ppopt.{room}.{module}") for module in modules)]
        files.append(File.generated(config, f"reference/{room}.md", content="\n".join(parts)))
    return files


def on_page_markdown(markdown: str, **kwargs: Any) -> str:
    """Links from the folder docs to files beside it lead to the pages that these become."""
    return moved(markdown)


def on_post_build(*, config: MkDocsConfig) -> None:
    """Nothing; the site fetches nothing from elsewhere.

    Raises:
        PluginError: a page or a style sheet does.
    """
    for pattern, outside in OUTSIDE.items():
        for path in Path(config.site_dir).rglob(pattern):
            found = outside.search(path.read_text(encoding="utf-8"))
            if found is not None:
                raise PluginError(f"{path.relative_to(config.site_dir)} fetches something from elsewhere: {found[0]}…")


def moved(text: str) -> str:
    """A page of the root as one of the folder docs: its links begin there."""
    for file, page in PAGES.items():
        text = re.sub(rf"(\]\()(?:\.\./)?{re.escape(file)}", rf"\g<1>{page}", text)
    return re.sub(r'(\]\(|src="|href="|srcset=")docs/', r"\1", text)


def reference(module: str) -> str:
    """What mkdocstrings makes of a module: the module itself, and its public names.

    A function that has the name of its own module hides from it, and is asked for by itself.
    """
    room = importlib.import_module(module)
    names = list(getattr(room, "__all__", ()))
    hidden = [name for name in names if getattr(getattr(room, name), "__module__", None) == f"{module}.{name}"]
    members = f"\n      members: {[name for name in names if name not in hidden]}" if names else ""
    parts = [f"::: {module}\n    options:\n      show_root_full_path: true{members}\n"]
    parts += [f"::: {module}.{name}.{name}\n    options:\n      heading_level: 3\n" for name in hidden]
    return "\n".join(parts)
