"""Groups of Hanayo, against its rule slot by slot."""

import pytest

from ppopt.named import find
from ppopt.op import Kind
from ppopt.pipeline import Pipeline


def slot_by_slot(devices: int, chunks: int, microbatches: int) -> list[list[tuple[int, Kind, int]]]:
    """Per device what it runs, by the rule of the groups, without looking for what repeats."""
    stages = devices * chunks
    home = [s % devices if s // devices % 2 == 0 else devices - 1 - s % devices for s in range(stages)]
    path = [(s, Kind.F, 1) for s in range(stages)] + [(s, Kind.B, 2) for s in range(stages - 1, -1, -1)]
    used: list[dict[int, object]] = [{} for _ in range(devices)]
    ran: list[list[tuple[int, int, Kind, int]]] = [[] for _ in range(devices)]
    begin = following = 0
    for m in range(microbatches):
        if m % devices == 0:
            begin = following
        at = begin
        for s, kind, width in path:
            while any(slot in used[home[s]] for slot in range(at, at + width)):
                at += 1
            used[home[s]] |= dict.fromkeys(range(at, at + width))
            ran[home[s]].append((at, s, kind, m))
            at += width
        if m % devices == 0:
            following = at
            turn = {(s, kind): at for row in ran for at, s, kind, of in row if of == m}
            for d in range(devices):
                out, back = turn[2 * devices - 1 - d, Kind.F], turn[stages - 1 - d, Kind.B]
                used[d] |= dict.fromkeys((*range(out - (devices - 1 - d), out), *range(back - d, back)))
    return [[(s, kind, m) for _, s, kind, m in sorted(row)] for row in ran]


@pytest.mark.parametrize(("devices", "chunks"), [(2, 2), (3, 2), (4, 2), (4, 4), (6, 2)])
def test_groups_go_on_as_slot_by_slot(devices: int, chunks: int) -> None:
    pipeline = Pipeline(devices, 9 * devices, placement="wave", chunks=chunks)
    schedule = find("hanayo").schedule(pipeline, chunks)
    found = [[tuple(op)[:3] for op in schedule.order.ops(d)] for d in range(devices)]
    assert found == slot_by_slot(devices, chunks, pipeline.microbatches)
