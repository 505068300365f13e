"""List scheduling: words and a priority rule become an order that keeps the words and every memory limit.

Time jumps from event to event. Whenever a device is free it starts, of the operations whose inputs are there and that its memory
has room for, the one that the rule ranks first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ppopt.clock import check_time
from ppopt.constraints import Capacity, Exclusive, Word, rules_of, spread
from ppopt.heuristics.claims import holding
from ppopt.heuristics.jobs import Jobs
from ppopt.heuristics.loops import simulate
from ppopt.heuristics.priorities import PRIORITIES, Rule
from ppopt.heuristics.ranked import Ranked
from ppopt.heuristics.simulation import sequence_of
from ppopt.pipeline import IntArray, Pipeline
from ppopt.schedule import Order, Schedule, in_sequence
from ppopt.timing import time_order

SECONDS = 1e-6
"""For each operation of a list schedule about, with compiled loops. Measured: 0.6e-6 to 1.1e-6 where there are 1,500,000."""


def list_schedule(
    pipeline: Pipeline,
    words: Iterable[Word],
    priority: str | Rule = "backward-first",
    *,
    patient: bool = False,
    reserve: bool = True,
) -> Schedule:
    """A schedule that keeps ``words``, among them :func:`~ppopt.constraints.rules_of`.

    ``priority``: a rule, or the name of one of :data:`~ppopt.heuristics.priorities.PRIORITIES`.

    ``patient``: a device about to start a weight gradient waits instead where something else is known to arrive so soon
    that the weight gradient would delay it longer than the wait.

    ``reserve``: an activation is claimed only where every microbatch can still be finished one after the other, the oldest
    first. With microbatches in order and no words but the rules this never gets stuck; without, a device with several stages can
    fill up with forwards of the early ones. Turn it off where other words fix the order.

    Raises:
        Stuck: memory, or a cycle in the words, lets nothing go on.
        CyclicOrder: words between devices contradict the order that was built.
        ValueError: the words contradict each other, or are not all :func:`listable`.
        TypeError: a word that is not known here.
    """
    words = tuple(words)
    return time_order(pipeline, _order(pipeline, words, priority, patient=patient, reserve=reserve), words=words)


def _order(pipeline: Pipeline, words: tuple[Word, ...], priority: str | Rule, *, patient: bool, reserve: bool) -> Order:
    check_time()
    jobs = Jobs(pipeline, words, links=True)
    check_time(simulate.seconds * len(jobs.numbers))
    rule = PRIORITIES[priority] if isinstance(priority, str) else priority
    return run_jobs(jobs, rule(jobs), patient=patient, reserve=reserve)


def filled(pipeline: Pipeline, words: Iterable[Word], priority: str | Rule = "oldest-backward-first") -> Schedule:
    """A schedule that keeps ``words``, with what they leave open decided as time goes by; the memory limit is not looked at.

    Devices are patient, and nothing is reserved: a weight gradient runs where the device would be idle otherwise, or where the
    words ask for it before something else can go on.

    Raises:
        Stuck, CyclicOrder, ValueError, TypeError: as :func:`list_schedule`.
    """
    return list_schedule(pipeline, (*_but_memory(pipeline), *words), priority, patient=True, reserve=False)


def filled_order(pipeline: Pipeline, words: Iterable[Word], priority: str | Rule = "oldest-backward-first") -> Order:
    """The order of :func:`filled`, not timed: whether words between devices contradict it is not known then.

    Raises:
        Stuck, ValueError, TypeError: as :func:`list_schedule`.
    """
    return _order(pipeline, (*_but_memory(pipeline), *words), priority, patient=True, reserve=False)


def _but_memory(pipeline: Pipeline) -> Iterator[Word]:
    return (rule for rule in rules_of(pipeline) if not isinstance(rule, Capacity))


def run_jobs(
    jobs: Jobs,
    keys: Sequence[IntArray],
    *,
    patient: bool = False,
    reserve: bool = True,
    release: IntArray | None = None,
) -> Order:
    """The order in which jobs run when those with smaller ``keys`` (:data:`~ppopt.heuristics.priorities.Keys`) go first.

    ``patient``, ``reserve``: as in :func:`list_schedule`. ``release``: per job, the tick before which it must not start.

    Raises:
        Stuck: memory, or a cycle in the words, lets nothing go on.
        ValueError: a device has two memories that hold different things.
    """
    ranked = Ranked(jobs, keys, release)
    return in_sequence(jobs.pipeline, ranked.numbers[sequence_of(ranked, patient=patient, reserve=reserve)])


def listable(pipeline: Pipeline, words: Iterable[Word]) -> tuple[Word, ...]:
    """The words that the list scheduler keeps while it builds an order.

    Left out are, of those beside the rules: ``Exclusive``, which on one device says nothing new; ``Capacity`` between devices, or
    of a device whose memory another one is about already. A word that is there twice is kept once.
    """
    rules = set(rules_of(pipeline))
    kept: list[Word] = []
    held_on: dict[int, object] = {}
    for word in sorted(dict.fromkeys(words), key=lambda word: word not in rules):
        if isinstance(word, Capacity) and word.holds:
            claim = word.holds[0].claim
            _, held = holding(word)
            if spread(pipeline, word) or held_on.setdefault(int(pipeline.device_of[claim.route, claim.stage]), held) != held:
                continue
        if not isinstance(word, Exclusive) or word in rules:
            kept.append(word)
    return tuple(kept)
