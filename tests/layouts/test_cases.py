"""Every golden case is read as the runtime reads it."""

import pytest

from ppopt.layouts import Refused, read
from tests.support.layouts import Case, cases, lists, of
from tests.support.many import each


@pytest.mark.parametrize("runtime", ["megatron", "megatron-hybrid", "torchtitan"])
def test_what_a_runtime_takes_is_read_as_it_reads_it(runtime: str) -> None:
    def check(case: Case) -> None:
        layout = read(runtime, case["input"]).layout
        assert layout.virtual == case["virtual"]
        assert lists(layout) == case["devices"]

    each(of(runtime, True), check)


@pytest.mark.parametrize("runtime", ["megatron", "megatron-hybrid", "torchtitan"])
def test_what_a_runtime_refuses_is_refused(runtime: str) -> None:
    def check(case: Case) -> None:
        with pytest.raises(Refused) as refused:
            read(runtime, case["input"])
        assert str(refused.value)

    each(of(runtime, False), check)


def test_there_are_all_kinds() -> None:
    assert len(cases()) == 135
    assert {case["runtime"] for case in cases().values()} == {"megatron", "megatron-hybrid", "torchtitan"}


def test_what_is_surprising_is_warned_of() -> None:
    """Cases whose note is about something that the runtime does without a word."""
    silent = {
        "own-empty-first-stage": "E on stage 1, but Megatron builds the embedding on stage 0",
        "own-empty-last-stage": "L on stage 2, but Megatron builds the head on stage 3",
        "own-comma-glues-digits": "2,3 is 23",
        "tt-fqns-layer-missing": "no stage names layers.2",
        "tt-fqns-1f1b-two-per-rank": "what stages from 2 on hold is not run",
        "hybrid-no-bars-even": "deprecated",
        "hybrid-no-bars-first-last": "deprecated",
    }

    def check(case: Case) -> None:
        warnings = read(case["runtime"], case["input"]).warnings
        expected = silent.get(case["id"])
        apart = "exchanges tensor shapes" if case.get("mtp_standalone") else None
        told = [text for text in (expected, apart) if text]
        assert len(warnings) == len(told)
        assert all(any(text in warning for warning in warnings) for text in told)

    each({name: case for name, case in cases().items() if case["valid"]}, check)


def test_stages_of_devices() -> None:
    """TorchTitan's ranks: in a loop, or a V."""

    def check(case: Case) -> None:
        layout = read("torchtitan", case["input"]).layout
        for device, numbers in enumerate(case["stage_of"]):
            assert tuple(layout.stages[s] for s in numbers) == layout.devices[device]

    each(of("torchtitan", True), check)
