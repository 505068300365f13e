"""Which step comes when, and for how long: one table for each kind of problem.

``left(1 / 4)`` is a quarter of the time that is left, ``whole(1 / 30)`` a thirtieth of the time limit. A turn is left out where
its step is not worth taking (:class:`~ppopt.search.step.Needs`), does not apply, or its condition (the functions below) does not
hold.
"""

from __future__ import annotations

from ppopt.search import tuning
from ppopt.search.problem import Problem
from ppopt.search.run import Run
from ppopt.search.step import Step
from ppopt.search.steps.binding_order import BindingOrder
from ppopt.search.steps.closed_forms import MemoryBound, OneMachine, Work
from ppopt.search.steps.decisions import Decide, Minimise
from ppopt.search.steps.dynamic_programming import DynamicProgramming
from ppopt.search.steps.integer_program import IntegerProgram
from ppopt.search.steps.list_schedules import ListSchedules, NamedHeuristics, PacedSchedules
from ppopt.search.steps.makespan_first import MakespanFirst
from ppopt.search.steps.modulo_scheduling import ModuloScheduling
from ppopt.search.steps.named_schedules import NamedSchedules
from ppopt.search.steps.neighbourhoods import Neighbourhoods
from ppopt.search.steps.smaller_pipelines import FewerDevices, FewMicrobatches, few
from ppopt.search.steps.state_graph import StateGraph
from ppopt.search.steps.tabu_search import TabuSearch
from ppopt.search.steps.windows import Windows
from ppopt.search.turns import Entry, Rounds, Turn, When, WhileGaining, left, whole

# --- conditions ---


def no(condition: When) -> When:
    """Where it does not hold."""
    return lambda run: not condition(run)


def every(*conditions: When) -> When:
    """Where all of them hold."""
    return lambda run: all(condition(run) for condition in conditions)


def full_speed(run: Run) -> bool:
    """In the kernel of a known schedule the busiest device never idles: only prologue and epilogue can be shorter."""
    return run.step(ModuloScheduling).full_speed


def many(run: Run) -> bool:
    """Decisions take long."""
    return run.problem.many


def wide(run: Run) -> bool:
    """Much is open, so that better schedules come first; else decisions at the bound often end the search."""
    return run.problem.many or run.incumbent.gap > tuning.WIDE


def span(run: Run) -> bool:
    """The objective is the device span."""
    return run.problem.span


def far(run: Run) -> bool:
    """A makespan of few operations of which much is open."""
    return not many(run) and not span(run) and wide(run)


def answering(run: Run) -> bool:
    """Of many operations, but not so many that decisions are never answered."""
    return many(run) and run.problem.operations <= tuning.ANSWERING


def asking(run: Run) -> bool:
    """Decisions on spans of few operations, which take longer and bring more than the rest."""
    return span(run) and not many(run)


def again(step: type[Step]) -> When:
    """Where a step was not in vain the last time, or there are few operations."""
    return lambda run: not (run.problem.many and run.step(step).gained is False)


def gained(step: type[Step]) -> When:
    """Its last turn raised the bound or found a better schedule, so that another one may, too."""
    return lambda run: run.step(step).gained is True


def fresh(run: Run) -> bool:
    """No list schedules at a pace were made before."""
    return run.step(PacedSchedules).fresh


def differing(run: Run) -> bool:
    """Microbatches are told apart."""
    return run.problem.differing


def over(run: Run) -> bool:
    """The last tabu search came to an end: the best may well be optimal."""
    return run.step(TabuSearch).over


def unbeaten(run: Run) -> bool:
    """It did, of few operations."""
    return not many(run) and over(run)


def long(run: Run) -> bool:
    """There are more microbatches than devices, and many operations."""
    return run.problem.many and run.problem.pipeline.microbatches > run.problem.pipeline.devices


def copying(run: Run) -> bool:
    """A makespan of few operations, activations may be copied to the host: named and list schedules are far from the best."""
    return bool(run.problem.pipeline.engines) and not many(run) and not span(run)


def tight(run: Run) -> bool:
    """The memory of one stage costs throughput."""
    return run.step(StateGraph).tight(run)


def loose(run: Run) -> bool:
    """Much is open within a limit of memory: that may cost throughput."""
    return run.problem.pipeline.amounts.limit is not None and run.incumbent.gap > tuning.WIDE


def coarse(run: Run) -> bool:
    """Schedules may be sought on a coarser grid."""
    return len(run.problem.grids) > 1


def short(run: Run) -> bool:
    """There are so few microbatches that the whole schedule may be prologue and epilogue."""
    pipeline = run.problem.pipeline
    return pipeline.microbatches <= tuning.ROUNDS * pipeline.devices


def few_microbatches(run: Run) -> bool:
    """There are no more microbatches than modulo scheduling looks at first."""
    return run.problem.pipeline.microbatches <= few(run.problem.pipeline)


def several(run: Run) -> bool:
    """A list schedule takes a moment."""
    return run.problem.operations <= tuning.SEVERAL


def not_from_modulo_scheduling(run: Run) -> bool:
    """The best schedule is not from modulo scheduling yet."""
    return run.incumbent.source != ModuloScheduling.name


def to_beat(run: Run) -> bool:
    """Something else is known that is to be beaten: another partition, placement or choice of what recomputes."""
    return run.problem.enough is not None and not many(run)


def narrow(run: Run) -> bool:
    """A makespan that is to be beaten is not much above the bound."""
    incumbent = run.incumbent
    return incumbent.best is not None and incumbent.to_beat - incumbent.lower <= tuning.WIDE * incumbent.to_beat


def nothing_found(run: Run) -> bool:
    """No schedule is known."""
    return run.incumbent.best is None


def bound(run: Run) -> bool:
    """Something binds beside the rules."""
    return bool(run.problem.words)


# --- shares of searches within the search, of the time limit; not measured ---

PLACEMENT = 1 / 100
"""A placement gets that at least while there is time, whatever others took, and nothing once less is left."""
NAMED = 1 / 3
"""What named schedules may take of what is left, beside a large pipeline, or one of many microbatches that differ."""
RECOMPUTE_ROOT, RECOMPUTE_NODE = 1 / 6, 1 / 30
"""What the root of the choice of recomputing stages, and at first every other node, may take."""

OWN_CUT = 3 / 4
"""What a cut of layers that is written out may take, before the best cut is looked for in what is left."""
OVER_CUTS = 1 / 20
"""What one look for the cut of layers with the least bound may take at first, and a second at least. One that is not answered has
to begin anew, so the next may take twice as long: measured, else the bound of 56 layers under a limit of memory never rises on a
loaded machine."""
ASKING = 1 / 3
"""What these looks may take together, while there are other cuts to be looked at within a limit of memory. Measured: 24 layers
with a heavy head in a loop of 2 on 8 devices do not need it: 1.0 to 1.1 % are open after 60 s with none, with it, and with all of
the time. It is there for where the bound over all cuts is what is missing."""
MOST_OVER_CUTS = 1 / 6
"""What one such look may take at most. Measured: with 40 layers in 16 stages they would take two thirds of a minute, which single
cuts and their orders need."""
MOVES = 1 / 60
"""What the way from a cut to one near it with smaller bounds may take."""
SMALL_BOUNDS = 1 / 20
"""What a local search for a cut with a small bound may take. Measured: of 60 s that is enough for 28 layers in 16 stages."""

LISTING = 1 / 15
"""What it may take to list the cuts whose bound is small. Measured on two idle cores: 3.5 s for the 1500 of 63 million, 48 layers
in 8 stages, whose bound is below the best schedule; 1.6 s for those below the middle between bound and best."""
MOST_LISTING = 1 / 6
"""What it may take at most, after lists that came to no end. Measured: 56 layers in 8 stages need 10 s for a list of 8000."""

RESTRICTED = 1 / 2
"""What the search for what a runtime can run may take; what it leaves goes to that without the restriction."""

# --- tables ---

CLOSED_FORMS: tuple[Entry, ...] = (Turn(OneMachine), Turn(MemoryBound))
SMALL_STATE_GRAPH = Turn(StateGraph, left(1 / 4, most=2.0), options={"most": tuning.STATE_GRAPH, "exact": True})
WHOLE_STATE_GRAPH = {"most": tuning.LARGE_STATE_GRAPH // 2, "exact": True}
"""The graph of all states, where memory is so tight that it may have an end. Measured on 90 pipelines that stayed open: all three
that have one below 4 million states are among the nine that are so tight; they take 1 to 4 s, and of the others four are given up
within 1 s."""
SOME_STATES = {"most": tuning.LARGE_STATE_GRAPH // 10}
"""Relaxations that are found in a second, or given up."""
MANY_STATES = {"most": tuning.LARGE_STATE_GRAPH}
LARGE_STATE_GRAPH = Turn(StateGraph, left(1 / 3), no(full_speed), MANY_STATES)

IN_TURN = (Turn(TabuSearch, whole(1 / 8)), Turn(Neighbourhoods, whole(1 / 10)))
"""Each goes on from where the other one came to its end. Measured on two of 2000 and 3000 operations, 40 s: where turns are half
as long, values are 0.1 % larger on average."""

SMALL: tuple[Entry, ...] = (
    # measured on the last cut of 28 layers in 16 stages: it is settled in 15 s, and other steps have not done so in minutes
    Turn(DynamicProgramming, left(9 / 10), every(to_beat, narrow)),
    # what others have reached may be out of reach
    Turn(Decide, left(1 / 3), to_beat, {"between": False, "exact": True}),
    # a first look at a cut of layers takes a second or a few: measured, without this they hardly get to neighbourhoods
    Turn(Neighbourhoods, left(2 / 3), every(to_beat, wide)),
    # decisions at the bound and between bound and best; better schedules first where much is open
    Turn(NamedHeuristics, left(1 / 4, most=1.0), wide),
    Turn(PacedSchedules, left(1 / 40), every(wide, no(many))),
    Turn(Neighbourhoods, left(1 / 8), copying),
    Turn(PacedSchedules, left(1 / 12), many),
    # measured on 3 that it proves in 5 to 7 s: behind the first decisions one of them stays open after 8 s
    Turn(StateGraph, left(9 / 10), every(no(many), tight), WHOLE_STATE_GRAPH),
    # a part of what the others need: measured, most of what it finds comes in the first second
    Turn(TabuSearch, left(1 / 6), many),
    Turn(TabuSearch, left(1 / 10), every(wide, no(many))),
    # measured on four that stay open after 8 and 40 s: idle gaps are 7, 8, 55 and 4 % instead of 29, 73, 63 and 38
    Turn(StateGraph, left(1 / 8), loose, SOME_STATES),
    Turn(StateGraph, left(1 / 3), every(loose, gained(StateGraph)), MANY_STATES),
    Turn(StateGraph, left(9 / 10), every(many, no(answering), tight), WHOLE_STATE_GRAPH),
    Turn(Windows, whole(1 / 12), every(many, no(answering), no(span))),
    # measured on 12 that stay open after 8 s: one is proved, two have half of the gap, and three others are up to 0.1 % longer;
    # with four fifths of what is left instead of half of it two more have half of the gap, and three are up to 0.3 % longer.
    # What is not answered in 5 s seldom is in 10
    Turn(Decide, left(4 / 5, most=10.0), every(answering, span), {"ends": False, "patience": 1, "leap": True}),
    # measured against one turn each behind modulo scheduling: of six that stay open after 40 s five get shorter, by up to 0.6 %,
    # and none longer; of 14 after 8 s five get shorter and one longer
    # measured on 11 that stay open after 8 s: of one 0.04 % is open instead of 7 %, the others are 0.03 % longer on average; two
    # that are proved after 4 s take three quarters of the time
    Turn(Decide, left(1 / 3), every(answering, no(span), over), {"patience": 1}),
    WhileGaining(IN_TURN, left(3 / 4), many),
    Turn(Decide, left(1 / 3), every(answering, span, again(Decide)), {"bound": False, "patience": 1}),
    # measured on 4 that stay open after 8 s when questions take a second: two are proved
    Turn(Decide, left(1 / 2), every(answering, no(span)), {"patience": 1}),
    Turn(StateGraph, left(9 / 10), every(answering, tight), WHOLE_STATE_GRAPH),
    # measured on 25 of these: it found the best of none
    Turn(ModuloScheduling, left(1 / 5), long),
    # of spans: as long as decisions are answered they come first. Measured on 13 that 8 s leave open: where those that
    # stay open did not end it they took all of it, and gaps are 4.7 % instead of 3.2 %; windows never proved a span
    Turn(TabuSearch, left(1 / 10), every(asking, no(wide))),
    # measured on 9 that 8 s leave open: with a quarter none is proved, with half of the time two are; 11 others are proved in
    # the same time as before, but one in 7.8 s instead of 5.3
    Turn(Decide, left(1 / 2), every(asking, unbeaten), {"between": False, "bound": False}),
    # measured on six that stay open after 8 s: with questions of 1 s 3.3 % are open on average, with half of the time 1.8 %; 13
    # others are proved as soon, in 2 to 7 s
    Turn(Decide, left(1 / 2, most=3.0), asking, {"best": False, "patience": 1}),
    # measured on two that stay open after 8 s when questions take a second: one is proved; of 24 others as many are proved
    Turn(Decide, whole(1 / 6, least=2.0), every(no(span), unbeaten), {"between": False}),
    Turn(Decide, whole(1 / 30, least=1.0), every(no(span), no(answering), no(unbeaten)), {"between": False}),
    Turn(TabuSearch, left(1 / 6), asking),
    Turn(Neighbourhoods, left(1 / 4), asking),
    Turn(StateGraph, left(1 / 8), every(asking, no(full_speed)), MANY_STATES),
    # measured on these 9: two short questions instead of a long one prove one fewer, and the gaps are a fifth larger
    Turn(Decide, left(1 / 2), asking, {"ends": False, "patience": 1}),
    # what proves that the best cannot be beaten, or beats it. Measured: where it came only once a decision was not answered,
    # decisions made two schedules shorter by little steps for 40 s; now the best is found and proved in 12 s
    Turn(NamedHeuristics, left(1 / 4, most=1.0), fresh),
    Turn(PacedSchedules, left(1 / 40), fresh),
    # of many operations a step that was in vain is left out: measured, neighbourhoods make more of its time
    Turn(Windows, whole(1 / 12), every(no(span), again(Windows))),
    Turn(TabuSearch, left(1 / 4)),
    # measured on one of 16 stages, 16 microbatches that it does not decide: with half of the time 0.1 % longer
    Turn(DynamicProgramming, left(1 / 4), every(no(many), narrow)),
    # one long question, once nothing better is found: measured, 3 devices of 4 chunks, 12 microbatches are proved in 17 s; short
    # ones leave 2.6 % open after 40 s
    Turn(Decide, left(1 / 3), every(unbeaten, no(wide)), {"between": False, "bound": False}),
    Turn(DynamicProgramming, left(1 / 2), every(no(many), narrow)),
    # measured on two that stay open after 8 s: one is proved where decisions beat what the first tabu search found
    Turn(Decide, whole(1 / 6, least=2.0), every(no(span), unbeaten, wide), {"between": False, "bound": False}),
    Turn(Neighbourhoods, left(1 / 3), span),
    # measured on three that 40 s leave open: values 0, 0.7 and 2 % smaller, and a bound 0.3 % larger; with half of the time one
    # of the bounds is 1.3 % smaller. Six that take 10 to 38 s are proved in 7 to 36 s, one of them in 29 s instead of 16
    WhileGaining(IN_TURN[::-1], left(1 / 3), far),
    Turn(Neighbourhoods, left(1 / 5), every(no(span), no(far))),
    Turn(Decide, whole(1 / 30, least=1.0), every(no(span), again(Decide)), {"ends": False}),
    Turn(Windows, left(2 / 3), gained(Windows)),
    Turn(Windows, whole(1 / 8), every(no(span), no(gained(Windows)), again(Windows))),
    LARGE_STATE_GRAPH,
    WhileGaining(IN_TURN, left(3 / 4), many),
    Turn(Neighbourhoods, left(1 / 3), every(gained(Neighbourhoods), no(many))),
    Turn(Decide, whole(1 / 5, least=3.0), asking),
    Turn(Decide, whole(1 / 10, least=3.0), every(no(asking), again(Decide))),
    Turn(ModuloScheduling, left(1 / 4), again(ModuloScheduling)),
    Rounds(
        (
            Turn(Decide, whole(1 / 10, least=2.0), coarse),
            Turn(Neighbourhoods, whole(1 / 5, least=4.0), coarse),
            Turn(Minimise, whole(1 / 5, least=4.0), coarse),
            Turn(Decide, whole(1 / 10, least=2.0), options={"exact": True}),
            Turn(DynamicProgramming, whole(1 / 10, least=2.0), every(no(many), narrow)),
            Turn(Neighbourhoods, whole(1 / 5, least=4.0)),
            Turn(Minimise, whole(1 / 5, least=4.0), options={"exact": True}),
            Turn(TabuSearch, whole(1 / 10, least=1.0)),
        )
    ),
)

LARGE: tuple[Entry, ...] = (
    # where no kernel can be repeated often, what modulo scheduling finds is no better than a list schedule
    Turn(PacedSchedules, left(1 / 12), every(short, not_from_modulo_scheduling)),
    # measured on the ten of 5376 to 12,288 operations that stay open after 8 s: ahead of modulo scheduling and windows seven get
    # shorter, by 0.2 to 0.6 %, none longer, and one of them is proved, in 4 s. Of more than 400 microbatches, after 20 s: two of
    # five have bounds that are 0.6 and 2.4 % smaller, and two are proved in 16 and 19 s instead of 7 and 11
    Turn(TabuSearch, left(2 / 3), every(several, few_microbatches)),
    # a good pace first; windows and modulo scheduling in turns, for longer
    Turn(ModuloScheduling, left(1 / 8), not_from_modulo_scheduling),
    Turn(TabuSearch, left(1 / 4), several),
    Turn(Windows, left(1 / 3), full_speed),
    Turn(ModuloScheduling, left(1 / 4), full_speed),
    LARGE_STATE_GRAPH,
    # measured on a wave of two chunks on 16 devices, 1024 microbatches: with a third of what is left never proved in 120 s
    Turn(Windows, left(1 / 2), full_speed, {"shortest": 8}),
    Turn(Windows, left(1 / 8), no(full_speed), {"shortest": 8}),
    Turn(ModuloScheduling, left(1 / 4), full_speed),
    Turn(ModuloScheduling, left(1 / 2), no(full_speed)),
    Turn(TabuSearch, left(1 / 2), several),
    Turn(ListSchedules, left(1 / 8)),
    Turn(PacedSchedules, left(1 / 8), no(full_speed)),
    Turn(Windows, left(1 / 2), full_speed, {"shortest": 10}),
    Turn(Windows, left(1 / 6), no(full_speed), {"shortest": 10}),
    Turn(TabuSearch, when=differing),  # windows and modulo scheduling do not apply
    Turn(ModuloScheduling),
    Turn(ListSchedules, when=nothing_found),
)

SPAN_FIRST = (Turn(MakespanFirst, left(0.8), options={"strategy": (*CLOSED_FORMS, SMALL_STATE_GRAPH, *LARGE)}),)
"""For spans of a large problem the makespan comes first."""

BEGIN_SMALL: tuple[Entry, ...] = (
    Turn(Work),
    Turn(NamedSchedules, left(NAMED)),
    Turn(BindingOrder, when=bound),
    *CLOSED_FORMS,
    SMALL_STATE_GRAPH,
    Turn(ListSchedules, options={"least": 1.0}),
)

BEGIN_LARGE: tuple[Entry, ...] = (
    # timing all named schedules may take longer than finding a better one
    Turn(Work),
    *CLOSED_FORMS,
    SMALL_STATE_GRAPH,
    Turn(FewMicrobatches, whole(1 / 10)),
    Turn(FewerDevices, whole(1 / 6), options={"strategy": (*CLOSED_FORMS, Turn(ModuloScheduling))}),
    Turn(ListSchedules, whole(1 / 5), several),
    Turn(ListSchedules, whole(1 / 20), no(several)),
    # checking and printing the answer needs the rest; less than half a second for a million operations, measured
    Turn(NamedSchedules, left(NAMED), options={"rest": 1 / 20}),
)

ILP: tuple[Entry, ...] = (
    Turn(Work),
    Turn(NamedSchedules),
    Turn(BindingOrder, when=bound),
    *CLOSED_FORMS,
    Turn(ListSchedules, options={"least": 1.0}),
    Turn(IntegerProgram),
)


def main(problem: Problem) -> tuple[Entry, ...]:
    """What comes after the beginning, and all that there is for a problem whose beginning was made by another one."""
    if not problem.large:
        return SMALL
    return (*SPAN_FIRST, *LARGE) if problem.span else LARGE


def strategy_of(problem: Problem, solver: str, engine: str | None = None) -> tuple[Entry, ...]:
    """The table for a problem; ``solver`` and ``engine`` as in :class:`~ppopt.search.settings.Settings`."""
    if solver == "ilp":
        return ILP if engine is None else (*ILP[:-1], Turn(IntegerProgram, options={"engine": engine}))
    return (*(BEGIN_LARGE if problem.large else BEGIN_SMALL), *main(problem))
