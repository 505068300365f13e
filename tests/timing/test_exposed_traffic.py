"""How much of the data-parallel traffic nothing hides."""

from fractions import Fraction

from ppopt.pipeline import DataParallel, Links, Pipeline
from ppopt.search import solve
from ppopt.timing import exposed_traffic, time_order
from ppopt.timing.links import begun, in_turn


def test_what_traffic_exposes_is_measured_with_the_transfers_in_their_order() -> None:
    # the best order of the transfers is another one than first come, first served, which alone takes longer than all of this
    links = Links(Fraction(1, 2), ((0, 0, 1, 1), (0, 0, 1, 1), (1, 1, 0, 0), (1, 1, 0, 0)), True)
    pipeline = Pipeline(4, 6, links=links, data_parallel=DataParallel(1, 1))
    schedule = solve(pipeline, seconds=20, workers=1).schedule
    assert schedule is not None
    without = pipeline.changed(data_parallel=DataParallel())
    assert time_order(without, schedule.order).makespan > in_turn(without, schedule.order, begun(schedule)).makespan
    assert 0 < exposed_traffic(schedule) <= 2 * pipeline.ticks.per_unit
