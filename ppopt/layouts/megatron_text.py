"""Megatron's layout string: ``Et*2|(t*2|)*34,t*3|L``. Letters are layers, ``|`` ends a stage, ``c*n`` and ``(…)*n`` repeat.

Source of the rules: megatron/core/transformer/pipeline_parallel_layer_layout.py of NVIDIA/Megatron-LM, d98e8a64.
"""

from __future__ import annotations

import re
from itertools import groupby
from typing import NamedTuple

from ppopt.layouts.layout import Refused
from ppopt.layouts.options import MAX_LAYERS, OptionError, check_stages

LETTERS = "EtmL"
"""Embedding, decoder layer, layer of multi-token prediction, head with the loss."""
MAX_TEXT = 2 * MAX_LAYERS
"""Most characters of a layout once all repetitions are written out."""
PERIOD = 64
"""Most runs of one letter in a repeated group that is looked for when a layout is written."""

_COUNT = re.compile(r"\*(\d+)")
_GLUED = re.compile(r"\d,+\d+")


def written(text: str) -> tuple[str, ...]:
    """The letters of each stage as they are written, all repetitions carried out.

    Raises:
        Refused: there is something else than letters, bars and repetitions.
        OptionError: the layout is larger than what is supported.
    """
    stages = _letters(_groups(text.replace(",", ""))).split("|")
    for number, stage in enumerate(stages):
        wrong = stage.strip(LETTERS)
        if wrong:
            raise Refused(f"stage {number}: {_reason(wrong[0])}")
    check_stages(len(stages))
    return tuple(stages)


def glued(text: str) -> str | None:
    """Digits that become one number because the comma between them vanishes first; ``None``: there are none."""
    found = _GLUED.search(text)
    return found[0] if found else None


def _reason(character: str) -> str:
    if character in "()":
        return f"{character!r} is left over: a group is (…)*n, and groups cannot be within each other"
    if character == "*" or character.isdecimal():
        return f"{character!r} is left over: one letter, bar or group is followed by * and a number, once"
    if character.isspace():
        return "a blank; layouts have none"
    return f"{character!r} is no layer; layers are E, t, m and L"


def _repeated(text: str, count: str) -> str:
    number = count.lstrip("0") or "0"
    if len(number) > len(str(MAX_TEXT)) or len(text) * int(number) > MAX_TEXT:
        raise OptionError(f"at most {MAX_TEXT} characters are supported in a layout that is written out")
    return text * int(number)


def _joined(parts: list[str]) -> str:
    if sum(map(len, parts)) > MAX_TEXT:
        raise OptionError(f"at most {MAX_TEXT} characters are supported in a layout that is written out")
    return "".join(parts)


def _groups(text: str) -> str:
    """The first pass: groups, whatever is in them. A group goes from its bracket to the nearest closing one."""
    parts: list[str] = []
    position = 0
    while (begin := text.find("(", position)) >= 0:
        end = text.find(")", begin + 1)
        times = _COUNT.match(text, end + 1) if end > begin + 1 else None
        if times is None:
            parts.append(text[position : begin + 1])
            position = begin + 1
        else:
            parts += [text[position:begin], _repeated(text[begin + 1 : end], times[1])]
            position = times.end()
    return _joined([*parts, text[position:]])


def _letters(text: str) -> str:
    """The second pass: single characters, whatever they are; bars, brackets and even stars included."""
    parts: list[str] = []
    position = search = 0
    while (star := text.find("*", search)) >= 0:
        times = _COUNT.match(text, star)
        if star == position or times is None or text[star - 1] == "\n":
            search = star + 1
        else:
            parts += [text[position : star - 1], _repeated(text[star - 1], times[1])]
            position = search = times.end()
    return _joined([*parts, text[position:]])


# --- writing -----------------------------------------------------------------------------------------------------


class _Tail(NamedTuple):
    """The shortest text from some run on: its length, groups that do not end with a stage, parts; and how it begins."""

    length: int
    odd: int
    parts: int
    runs: int = 0
    times: int = 1


def shortened(stages: tuple[str, ...]) -> str:
    """A short text for these letters of each stage: runs such as ``t*3``, groups that repeat as ``(…)*n``."""
    runs = [_run(letter, sum(1 for _ in same)) for letter, same in groupby("|".join(stages))]
    repeats = _repeats(runs)
    lengths = [len(run) for run in runs]
    tails = [_Tail(0, 0, 0)] * (len(runs) + 1)
    for j in range(len(runs) - 1, -1, -1):
        after = tails[j + 1]
        best = _Tail(lengths[j] + after.length, after.odd, 1 + after.parts, 1)
        body = lengths[j]
        for period in range(2, len(repeats)):
            if j + 2 * period > len(runs):
                break
            body += lengths[j + period - 1]
            odd = runs[j + period - 1][0] != "|"
            most = 1 + repeats[period][j] // period
            for times in range(max(2, most - 1), most + 1):
                after = tails[j + period * times]
                length = body + len(f"()*{times}") + after.length
                best = min(best, _Tail(length, odd + after.odd, 1 + after.parts, period, times))
        tails[j] = best
    parts, j = [], 0
    while j < len(runs):
        _, _, _, count, times = tails[j]
        body_text = "".join(runs[j : j + count])
        parts.append(body_text if times == 1 else f"({body_text})*{times}")
        j += count * times
    return "".join(parts)


def _run(letter: str, count: int) -> str:
    return letter * count if count <= 2 else f"{letter}*{count}"


def _repeats(runs: list[str]) -> list[list[int]]:
    """``[p][j]``: how many runs from j on are the same as those p later."""
    table: list[list[int]] = []
    for period in range(min(PERIOD, len(runs) // 2) + 1):
        same = [0] * (len(runs) + 1)
        for j in range(len(runs) - period - 1, -1, -1):
            same[j] = same[j + 1] + 1 if runs[j] == runs[j + period] else 0
        table.append(same)
    return table
