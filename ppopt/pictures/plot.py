"""Results, rows and files drawn on one time axis: a picture, or a page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ppopt.files import FileError, Model, write_text
from ppopt.pictures.layout import PAGE, PICTURES, check_suffix
from ppopt.pictures.shown import Drawn, Shown, Undrawable, shown

if TYPE_CHECKING:
    from ppopt.pictures.timeaxis import Part


def plot(
    drawn: Drawn | Sequence[Drawn],
    path: str,
    *,
    memory: bool = False,
    width: float | None = None,
    model: Model | None = None,
    change: Callable[[Model], Model] = lambda model: model,
    labels: Sequence[str] = (),
    beside: Sequence[str] = (),
    full: bool = False,
    begin: float | None = None,
    end: float | None = None,
) -> None:
    """Draw one or several schedules, one below the other on one time axis, as png, svg, pdf or html by the suffix of ``path``.

    ``memory``: with what each device holds. ``width`` is in inches, by default as wide as the numbers need (a page: as wide as
    the window). Files have a result's own model, or unit costs, unless ``model`` is given; ``change`` is made to either.
    ``labels`` are the titles, first come, first served. ``beside``: named schedules on the hardware of the first one, drawn below
    all. In a picture, a long schedule is shown at its beginning, in its middle and at its end; ``full`` shows all of it,
    ``begin`` and ``end`` the times between them. A page can be moved anyway, and shows these times first.

    Raises:
        ValueError: another suffix.
        Undrawable: there is no schedule to draw, there are more labels than schedules, or there is no time between
            ``begin`` and ``end``.
        FileError: a file cannot be read, or the picture cannot be written.
        Restriction, UnknownSchedule: a schedule of ``beside`` is not defined there, or nobody has its name.
        NoPage: a page is wanted, and Bokeh is not installed.
    """
    html = check_suffix(path, (*PICTURES, PAGE)) == PAGE
    if html:
        from ppopt.pictures.page.document import check_installed

        check_installed()
    several = shown(drawn, model, change, labels=labels, beside=beside)
    part = part_of(several, begin, end)
    if html:
        from ppopt.pictures.page.document import page

        write_text(path, page(several, memory=memory, width=width, part=part))
        return
    from ppopt.pictures.figure import figure, save

    try:
        save(figure([(each.title, each.schedule) for each in several], memory=memory, width=width, full=full, part=part), path)
    except OSError as error:
        raise FileError(f"{path}: cannot be written: {error.strerror or error}") from None


def part_of(several: Sequence[Shown], begin: float | None, end: float | None) -> Part | None:
    """The times between which schedules are shown, where one of both is given.

    Raises:
        Undrawable: there is no time between them, or all schedules have ended before.
    """
    if begin is None and end is None:
        return None
    last = max(each.end for each in several)
    since, until = begin or 0.0, last if end is None else end
    if since >= last:
        raise Undrawable(f"begin: expected a time before the end of the schedules, {last:g}, got {since:g}")
    if since >= until:
        raise Undrawable(f"end: expected a time after {since:g}, got {until:g}")
    return since, until
