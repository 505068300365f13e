"""Options that commands share: where the model comes from and what is changed in it."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from typing import Any, TypeVar

import click

from ppopt.files import Change, FileError, Model, ModelError, model_dict, model_of, setting, write_text
from ppopt.files.model import read_tree
from ppopt.files.text import source_of
from ppopt.named import Definition, find, reading
from ppopt.op import Kind
from ppopt.pipeline import ANY, CHOOSE, PLACEMENTS
from ppopt.pipeline.choices import CHUNKS

Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True)
class Given:
    """A model as the command line gives it: a file (or none) and changes to it."""

    path: str | None
    changes: tuple[Change, ...]
    chunks: tuple[int, ...] = ()
    """``--chunks``: for which numbers the named schedules that need chunks are shown."""
    any_placement: bool = False
    """``--placement any``: every placement of the model's devices, with the same costs per device."""

    def read(self) -> Model:
        """The model; without a file, a pipeline with unit costs.

        Raises:
            ModelError: the file or a change is wrong.
        """
        model = self._read()
        if model.written is not None:
            find_schedule(model.written)
        if self.any_placement:
            own = model.pipeline
            chunks = self.chunks or own.chunks
            several = chunks if isinstance(chunks, tuple) or chunks > 1 else CHUNKS
            model = replace(model, pipeline=own.placed(ANY, several), placed=own if model.order is not None else None)
        return model

    def _read(self) -> Model:
        if self.path is not None:
            return self._changed(read_tree(self.path), source_of(self.path))
        keys = {change.key for change in self.changes}
        missing = [flag for flag, key in _SIZES.items() if key not in keys]
        if missing:
            raise click.UsageError(f"without MODEL a pipeline needs {' and '.join(_SIZES)}; missing: {', '.join(missing)}")
        return model_of({}, "command line", self.changes)

    def _changed(self, tree: dict[str, Any], source: str) -> Model:
        """The model of a file with the changes made; given another placement, the file's own schedule or order may have to go."""
        gone: list[Change] = []
        while True:
            try:
                return model_of(tree, source, [*self.changes, *gone])
            except ModelError as error:
                key = error.key.split("[")[0]
                if key not in _OWN or not self.placed:
                    raise
                elsewhere = error
            try:
                model_of(tree, source, [change for change in self.changes if change.key not in PLACED])
            except ModelError:
                raise elsewhere from None
            click.echo(f"Note: the model's own {_OWN[key][0]} is left out. {elsewhere}", err=True)
            gone += [Change(own, None, "") for own in _OWN[key][1]]

    @property
    def placed(self) -> bool:
        """Whether the command line gives another placement."""
        return any(change.key in PLACED for change in self.changes)

    def change(self, model: Model, source: str = "the model of the file") -> Model:
        """Another model, of ``source``, with the same changes made to it."""
        return model_of(model_dict(model), source, self.changes) if self.changes else model


_CHUNKS_HELP = {
    False: "Stages per device and route; a list (2,4) leaves it open which.",
    True: "Stages per device of the schedules that take several; a list such as 2,4 shows each.",
}
_OWN = {
    "pipeline.schedule": ("schedule", ("pipeline.schedule", "pipeline.schedule_params")),
    "pipeline.order": ("order", ("pipeline.order",)),
}
"""Keys that hold on one placement: what they give, and the keys that go with them."""
PLACED = ("pipeline.placement", "pipeline.chunks", "pipeline.routes")
"""Keys that say where the stages are."""
_SIZES = {"-d/--devices": "pipeline.devices", "-m/--microbatches": "pipeline.microbatches"}


class Limit(click.ParamType):  # type: ignore[type-arg]
    """A memory limit: a number, one per device with commas between, or ``none``."""

    name = "limit"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """A decimal, a list of decimals, or the word ``none``."""
        if not isinstance(value, str) or value == "none":
            return value
        numbers = [self._number(part.strip(), param, ctx) for part in value.split(",")]
        return numbers if len(numbers) > 1 else numbers[0]

    def _number(self, text: str, param: click.Parameter | None, ctx: click.Context | None) -> Decimal:
        try:
            number = Decimal(text)
        except InvalidOperation:
            number = Decimal("nan")
        if not number.is_finite() or number < 0:
            self.fail(f"expected a number >= 0, one per device with commas between, or none; got {text!r}", param, ctx)
        return number


class Seconds(click.ParamType):  # type: ignore[type-arg]
    """A finite number, larger than zero (or at least zero)."""

    name = "number"

    def __init__(self, least: float = 0.0, most: float = math.inf, positive: bool = False) -> None:
        self.least, self.most, self.positive = least, most, positive

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """A float in range."""
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not math.isfinite(number) or not self.least <= number <= self.most or (self.positive and number == 0):
            expected = f"a finite number {'>' if self.positive else '>='} {self.least:g}"
            expected += f" and <= {self.most:g}" if self.most < math.inf else ""
            self.fail(f"expected {expected}, got {value!r}", param, ctx)
        return number


class Counts(click.ParamType):  # type: ignore[type-arg]
    """Whole numbers >= 1 with commas between."""

    name = "list"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        """A tuple of integers."""
        if isinstance(value, tuple):
            return value
        try:
            numbers = tuple(int(part) for part in value.split(","))
        except ValueError:
            numbers = (0,)
        if min(numbers) < 1:
            self.fail(f"expected a whole number >= 1, or several with commas between (2,4); got {value!r}", param, ctx)
        return numbers


class Doubling(Counts):
    """Whole numbers >= 1 with commas between, or ``8..1024``: 8, 16, 32, …, 1024."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        """A tuple of integers, ascending."""
        first, dots, last = value.partition("..") if isinstance(value, str) else ("", "", "")
        if not dots:
            return tuple(sorted(set(super().convert(value, param, ctx))))
        (low,), (high,) = (super(Doubling, self).convert(part, param, ctx)[:1] for part in (first, last))
        if low > high:
            self.fail(f"expected the smaller number first, got {value!r}", param, ctx)
        return tuple(low << k for k in range((high // low).bit_length()))


class Stages(click.ParamType):  # type: ignore[type-arg]
    """Which stages recompute: a word, or stages with commas between."""

    name = "stages"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The word, or a list of integers."""
        if not isinstance(value, str) or value in ("none", "all", CHOOSE):
            return value
        try:
            return [int(part) for part in value.split(",")]
        except ValueError:
            self.fail(f"expected none, all, {CHOOSE}, or stages with commas between (0,2); got {value!r}", param, ctx)


def model_options(*, own_chunks: bool = False, argument: bool = True) -> Callable[[Command], Command]:
    """Argument MODEL and the options that override it; the command gets them as ``given``.

    With ``own_chunks`` the numbers of chunks do not override the model's: each named schedule has its own placement. Without
    ``argument`` the command has its own way to name the model.
    """

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def wrapped(
            model: str | None,
            devices: int | None,
            microbatches: tuple[int, ...] | None,
            chunks: tuple[int, ...] | None,
            placement: str | None,
            recompute: Any,
            memory_limit: Any,
            settings: Sequence[str],
            **others: Any,
        ) -> Any:
            changes = [setting(text) for text in settings]
            everywhere = placement == ANY
            flags = [
                ("pipeline.devices", devices, f"-d {devices}"),
                ("pipeline.microbatches", _one_or_list(microbatches), f"-m {_listed(microbatches)}"),
                ("pipeline.chunks", None if own_chunks or everywhere else _one_or_list(chunks), f"-v {_listed(chunks)}"),
                ("pipeline.placement", None if everywhere else placement, f"--placement {placement}"),
                ("pipeline.recompute", recompute, "--recompute"),
                ("memory.limit", memory_limit, "--memory-limit"),
            ]
            changes += [Change(key, None if value == "none" else value, flag) for key, value, flag in flags if value is not None]
            return command(given=Given(model, tuple(changes), chunks or (), everywhere), **others)

        options = (
            *([click.argument("model", required=False)] if argument else []),
            click.option("-d", "--devices", type=int, help="Number of devices."),
            click.option(
                "-m",
                "--microbatches",
                type=Doubling(),
                metavar="M",
                help="Number of microbatches; solve also takes 8,12,40 or 8..1024.",
            ),
            click.option("-v", "--chunks", type=Counts(), metavar="LIST", help=_CHUNKS_HELP[own_chunks]),
            click.option("--placement", type=click.Choice([*PLACEMENTS, ANY]), help="Where the stages are; any leaves it open."),
            click.option(
                "--recompute",
                type=Stages(),
                metavar="STAGES",
                help="Stages that recompute: none, all, 0,2, or choose (left open).",
            ),
            click.option(
                "--memory-limit", type=Limit(), metavar="LIMIT", help="One number, one per device (3,4,4), or none: unlimited."
            ),
            click.option(
                "--set",
                "settings",
                multiple=True,
                metavar="KEY=VALUE",
                help="Set a dotted key of the model file, such as costs.forward=2; a flag beats it.",
            ),
        )
        for option in reversed(options):
            wrapped = option(wrapped)
        return wrapped  # type: ignore[return-value]

    return decorate


def _one_or_list(numbers: tuple[int, ...] | None) -> int | list[int] | None:
    return None if numbers is None else numbers[0] if len(numbers) == 1 else list(numbers)


def _listed(numbers: tuple[int, ...] | None) -> str:
    return ",".join(map(str, numbers or ()))


def kinds(ctx: click.Context, param: click.Parameter, text: str | None) -> tuple[Kind, ...]:
    """``F,W`` as kinds."""
    if text is None:
        return ()
    names = [part.strip() for part in text.split(",")]
    if not set(names) <= set(Kind.__members__):
        raise click.BadParameter(f"expected kinds of {', '.join(Kind.__members__)} with commas between, got {text!r}")
    return tuple(dict.fromkeys(Kind[name] for name in names))


def find_schedule(name: str) -> Definition:
    """The schedule of this name; where the name might be taken for another one, standard error says which is meant.

    Raises:
        UnknownSchedule: nobody has this name.
    """
    definition, text = find(name), reading(name)
    said = click.get_current_context().meta.setdefault("ppopt.readings", set())
    if text is not None and text not in said:
        said.add(text)
        click.echo(f"Note: {text}.", err=True)
    return definition


def output_path(ctx: click.Context, param: click.Parameter, path: str | None) -> str | None:
    """A path that can be written, as far as can be told beforehand."""
    folder = os.path.dirname(os.path.abspath(path)) if path is not None else ""
    if path is not None and not os.path.isdir(folder):
        raise click.BadParameter(f"there is no folder {folder!r}")
    return path


@contextmanager
def kept(path: str | None, text: str) -> Iterator[None]:
    """Write ``text`` to ``path``, if there is one, before anything else is done; if that fails, say so when all else is done.

    What was found is so in the file even if it cannot be printed, and printed even if the file cannot be written.

    Raises:
        FileError: the file cannot be written.
    """
    failed: FileError | None = None
    if path is not None:
        try:
            write_text(path, text)
        except FileError as error:
            failed = error
    yield
    if failed is not None:
        raise failed


json_option = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON (docs/result-json.md).")


def _parameters(ctx: click.Context, param: click.Parameter, texts: Sequence[str]) -> dict[str, Any]:
    """``NAME=VALUE`` texts as a table."""
    return {change.key: change.value for change in (setting(text, "--param", "group_size=8") for text in texts)}


parameters_option = click.option(
    "--param",
    "params",
    multiple=True,
    metavar="NAME=VALUE",
    callback=_parameters,
    help="A parameter of the named schedule, such as group_size=8; `ppopt schedules NAME` lists them.",
)
