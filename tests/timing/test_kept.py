"""What is told by whole arrays of words that are kept, against the reading of one operation after the other."""

import random

from hypothesis import strategies as st

from ppopt.constraints import Family, Listed, OneOf, Precede, Word
from ppopt.op import Kind, Op
from ppopt.pipeline import Pipeline
from ppopt.schedule import Order, Schedule
from ppopt.timing import broken, obeys, obeys_all, time_order
from ppopt.timing.kept import Kept
from tests.support.strategies import orders, pipelines
from tests.support.tiers import drawn


def words_on(pipeline: Pipeline, rng: random.Random) -> list[Word]:
    """Some that are kept and some that are not."""

    def op() -> Op:
        return Op(rng.randrange(pipeline.stages), rng.choice(list(Kind)), rng.randrange(pipeline.microbatches))

    def stream() -> Family | Listed:
        if rng.random() < 0.5:
            return Family(rng.randrange(pipeline.stages), rng.choice(list(Kind)), rng.randrange(len(pipeline.routes)))
        return Listed(op() for _ in range(rng.randint(0, 4)))

    def one_of(stage: int) -> OneOf:
        whole, split = (Family(stage, Kind.B),), (Family(stage, Kind.I), Family(stage, Kind.W))
        return OneOf(rng.choice([(whole,), (split,), (whole, split), ((Family(stage, Kind.F),), whole)]))

    relations: list[Word] = [Precede(stream(), stream(), rng.randint(-2, 2), rng.randint(0, 2)) for _ in range(20)]
    return relations + [one_of(stage) for stage in range(pipeline.stages)]


@drawn(60, 400, pipelines(30).flatmap(lambda p: st.tuples(st.just(p), orders(p), st.randoms(use_true_random=False))))
def test_a_word_is_kept_where_no_operation_breaks_it(case: tuple[Pipeline, Order, random.Random]) -> None:
    pipeline, order, rng = case
    schedule: Schedule = time_order(pipeline, order)
    kept, reading = Kept(schedule), obeys._Reading(schedule)
    for word in words_on(pipeline, rng):
        told, keeps = list(reading.of(word)), kept.keeps(word)
        assert keeps in (None, not told), word
        assert not (kept.known and isinstance(word, Precede) and keeps is None), word
        assert obeys_all(schedule, [word]) == (not broken(schedule, [word])), word
