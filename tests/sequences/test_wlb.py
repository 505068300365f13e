"""WLB-LLM over several steps: what waits, and what is left over."""

import random

import pytest

from ppopt.sequences import Waiting, wlb_step


def test_long_documents_wait_until_there_is_one_for_each_microbatch() -> None:
    """By hand, two microbatches of at most 20 tokens, queues from 8 and from 12."""
    lengths = [9, 3, 2, 12, 4, 1, 8, 2]
    bags, waiting = wlb_step(lengths, range(4), Waiting(), 2, 20, (8, 12))
    assert (bags, waiting) == ([[1], [2]], Waiting(((0,), (3,)), ()))
    bags, waiting = wlb_step(lengths, range(4, 8), waiting, 2, 20, (8, 12))
    assert (bags, waiting) == ([[0, 7, 5], [6, 4]], Waiting(((), (3,)), ()))


def test_what_does_not_fit_comes_first_in_the_next_step() -> None:
    lengths = [7, 7, 7, 2, 9]
    bags, waiting = wlb_step(lengths, range(4), Waiting(), 2, 10)
    assert (bags, waiting) == ([[0, 3], [1]], Waiting((), (2,)))
    bags, waiting = wlb_step(lengths, [4], waiting, 2, 10)
    assert (bags, waiting) == ([[2], [4]], Waiting())


def test_no_document_is_lost_or_run_twice_and_queues_are_first_in_first_out() -> None:
    for seed in range(60):
        rng = random.Random(seed)
        lengths = [rng.choice([rng.randint(1, 10), rng.randint(1, 40)]) for _ in range(60)]
        microbatches, waiting = rng.randint(1, 4), Waiting()
        ran: list[int] = []
        for begin in range(0, 60, 10):
            bags, waiting = wlb_step(lengths, range(begin, begin + 10), waiting, microbatches, 60, (15, 25))
            assert all(sum(lengths[i] for i in bag) <= 60 for bag in bags)
            ran += [i for bag in bags for i in bag]
            assert sorted([*ran, *waiting.left, *(i for queue in waiting.queues for i in queue)]) == list(range(begin + 10))
        for low, high, queue in ((15, 25, waiting.queues[0]), (25, 99, waiting.queues[1])):
            own = [i for i in range(60) if low <= lengths[i] < high]
            assert list(queue) == own[len(own) - len(queue) :]


def test_bad_thresholds_are_refused() -> None:
    with pytest.raises(ValueError, match="expected ascending numbers of tokens, got \\[8, 8\\]"):
        wlb_step([1], [0], Waiting(), 1, 9, (8, 8))
    with pytest.raises(ValueError, match="expected 1, one per queue, got 2"):
        wlb_step([1], [0], Waiting(((),)), 1, 9, (4, 8))
    with pytest.raises(ValueError, match="at most 9 tokens, got one of 10"):
        wlb_step([10], [0], Waiting(), 1, 9)
