"""The loops of list scheduling, against what they are said to work out."""

from random import Random
from types import SimpleNamespace

from ppopt.heuristics.loops import all_can_finish, to_finish


def states(rng: Random) -> tuple[SimpleNamespace, SimpleNamespace]:
    """A memory of a few routes with some stages each, and what of their microbatches has claimed and finished."""
    route = [r for r in range(rng.randint(1, 4)) for _ in range(rng.randint(1, 3))]
    begun = [[1, 5, 3, 1][r] for r in route]
    claimed = [rng.randint(0, most) for most in begun]
    memories = SimpleNamespace(
        first=[0, len(route)],
        route=route,
        amount=[rng.randint(0, 4) for _ in route],
        begun=begun,
        limit=[rng.randint(2, 24)],
    )
    return memories, SimpleNamespace(claimed=claimed, finished=[rng.randint(0, n) for n in claimed])


def test_all_can_finish_where_each_can() -> None:
    rng, seen = Random(7), set[bool]()
    for _ in range(2000):
        memories, account = states(rng)
        each = (
            to_finish(0, memories.route[i], account.claimed[i], memories, account) <= memories.limit[0]
            for i in range(memories.first[1])
            if memories.amount[i] > 0 and account.claimed[i] < memories.begun[i]
        )
        found = all_can_finish(0, memories, account)
        assert found is all(each)
        seen.add(found)
    assert len(seen) == 2
