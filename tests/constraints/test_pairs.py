"""Which pairs are a choice."""

from fractions import Fraction

from ppopt import cpsat, ilp
from ppopt.constraints import Family, Pairable, Precede, pairs_of
from ppopt.op import Kind
from ppopt.pipeline import Costs, Pipeline
from tests.support.unaided import optimum


def test_pairs_that_save_nothing_are_no_choice() -> None:
    assert pairs_of(Pipeline(4, 8, "bidirectional", costs=Costs(overlap=3))) == ()
    assert pairs_of(Pipeline(4, 8)) == ()
    words = pairs_of(Pipeline(2, 4, "bidirectional", costs=Costs(overlap=Fraction(5, 2))))
    families = [(Family(0, Kind.F), Family(1, Kind.F, 1)), (Family(0, Kind.B), Family(1, Kind.B, 1))]
    assert words[0] == Pairable(*families)


def test_an_order_between_two_operations_keeps_them_apart() -> None:
    pipeline = Pipeline(1, 2, costs=Costs(forward=2, backward=3, overlap=4))
    assert optimum(cpsat, pipeline, "makespan", pairs_of(pipeline)) == 9
    apart = Precede(Family(0, Kind.B), Family(0, Kind.F), shift=1)  # B(0), then F(1)
    for solver in (cpsat, ilp):
        assert optimum(solver, pipeline, "makespan", (*pairs_of(pipeline), apart)) == 10
