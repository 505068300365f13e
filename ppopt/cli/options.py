"""Options that commands share: where the model comes from and what is changed in it."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import click

from ppopt.cli.values import Counts, Doubling, Limit, Partition, Stages
from ppopt.files import Change, FileError, Model, ModelError, model_dict, model_of, setting, write_text
from ppopt.files.model import place_of, read_tree
from ppopt.files.text import source_of
from ppopt.layouts import is_layout
from ppopt.named import Definition, find, reading
from ppopt.named.columns import columns_for
from ppopt.op import Kind
from ppopt.pipeline import ANY, GIVEN, OPEN, PLACEMENTS, PipelineError
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
                model_of(tree, source, [change for change in self.changes if not _places(change)])
            except ModelError:
                raise elsewhere from None
            click.echo(f"Note: the model's own {_OWN[key][0]} is left out. {elsewhere}", err=True)
            gone += [Change(own, None, "") for own in _OWN[key][1]]

    @property
    def placed(self) -> bool:
        """Whether the command line gives another placement."""
        return any(_places(change) for change in self.changes)

    @contextmanager
    def blamed(self) -> Iterator[None]:
        """What is found wrong with the model inside is a mistake of the file or the flag that has its key.

        Raises:
            ModelError: something is; it says where.
        """
        try:
            yield
        except PipelineError as error:
            source = "command line" if self.path is None else source_of(self.path)
            raise ModelError(place_of(error.key, source, self.changes), error.key, error.message, error) from None

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


def _places(change: Change) -> bool:
    """Whether a change says where the stages are; a layout does."""
    return change.key in PLACED or (change.key == "pipeline.partition" and is_layout(change.value))


_SIZES = {"-d/--devices": "pipeline.devices", "-m/--microbatches": "pipeline.microbatches"}


@dataclass(frozen=True)
class _ModelOptions:
    """The values of the argument MODEL and of the options that override it; ``None``: not given."""

    model: str | None
    devices: int | None
    microbatches: tuple[int, ...] | None
    chunks: tuple[int, ...] | None
    placement: str | None
    partition: Any
    recompute: Any
    memory_limit: Any
    microbatch_order: str | None
    settings: Sequence[str]

    def given(self, *, own_chunks: bool) -> Given:
        """The model that they give. ``own_chunks``: the numbers of chunks do not override the model's."""
        everywhere = self.placement == ANY and not is_layout(self.partition)  # which settles what is open
        chunks = None if own_chunks or everywhere else _one_or_list(self.chunks)
        flags = [
            ("pipeline.devices", self.devices, f"-d {self.devices}"),
            ("pipeline.microbatches", _one_or_list(self.microbatches), f"-m {_listed(self.microbatches)}"),
            ("pipeline.chunks", chunks, f"-v {_listed(self.chunks)}"),
            ("pipeline.placement", None if everywhere else self.placement, f"--placement {self.placement}"),
            ("pipeline.partition", self.partition, "--partition"),
            ("pipeline.recompute", self.recompute, "--recompute"),
            ("memory.limit", self.memory_limit, "--memory-limit"),
            ("pipeline.microbatch_order", self.microbatch_order, f"--microbatch-order {self.microbatch_order}"),
        ]
        changes = [setting(text) for text in self.settings]
        changes += [Change(key, None if value == "none" else value, flag) for key, value, flag in flags if value is not None]
        return Given(self.model, tuple(changes), self.chunks or (), everywhere)


def _overrides(own_chunks: bool) -> list[Callable[[Command], Command]]:
    """The options that override the model."""
    limit_help = "One number, one per device (3,4,4), or none: unlimited."
    microbatches_help = "Number of microbatches; solve also takes 8,12,40 or 8..1024."
    partition_help = "Layers of each stage: even, balanced, best (left open), 11,10,10,11, or a layout (Et*2|t*3L)."
    recompute_help = "Stages that recompute: none, all, 0,2, or choose (left open)."
    order_help = "Whether microbatches that differ run in their order, or in any."
    set_help = "Set a dotted key of the model file, such as costs.forward=2; a flag beats it."
    return [
        click.option("-d", "--devices", type=int, help="Number of devices."),
        click.option("-m", "--microbatches", type=Doubling(), metavar="M", help=microbatches_help),
        click.option("-v", "--chunks", type=Counts(), metavar="LIST", help=_CHUNKS_HELP[own_chunks]),
        click.option("--placement", type=click.Choice([*PLACEMENTS, ANY]), help="Where the stages are; any leaves it open."),
        click.option("--partition", type=Partition(), metavar="CUT", help=partition_help),
        click.option("--recompute", type=Stages(), metavar="STAGES", help=recompute_help),
        click.option("--memory-limit", type=Limit(), metavar="LIMIT", help=limit_help),
        click.option("--microbatch-order", type=click.Choice([GIVEN, OPEN]), help=order_help),
        click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help=set_help),
    ]


def model_options(*, own_chunks: bool = False, argument: bool = True) -> Callable[[Command], Command]:
    """Argument MODEL and the options that override it; the command gets them as ``given``.

    With ``own_chunks`` the numbers of chunks do not override the model's: each named schedule has its own placement. Without
    ``argument`` the command has its own way to name the model.
    """
    options = [*([click.argument("model", required=False)] if argument else []), *_overrides(own_chunks)]

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def wrapped(**values: Any) -> Any:
            model = _ModelOptions(**{field.name: values.pop(field.name) for field in fields(_ModelOptions)})
            given = model.given(own_chunks=own_chunks)
            with given.blamed():
                return command(given=given, **values)

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


def _columns(ctx: click.Context, param: click.Parameter, text: str | None) -> tuple[str, ...] | None:
    """Names of columns with commas between."""
    if text is None:
        return None
    names = tuple(part.strip() for part in text.split(","))
    try:
        columns_for([], names)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    return names


columns_option = click.option(
    "--columns",
    callback=_columns,
    metavar="NAME,…",
    help="Show these figures of each schedule (all: every one), such as speed-up,relative-efficiency.",
)
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
