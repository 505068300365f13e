"""Operations: parsing, printing, numbers."""

import pytest

from ppopt.op import Kind, Op, OpIndex, Pair, Send, parse


@pytest.mark.parametrize("text", ["0F0", "2B17", "13I4", "1023W262143", "(0F3;7B1)OVERLAP_F_B"])
def test_reads_what_it_prints(text: str) -> None:
    assert str(parse(text)) == text


def test_reads_the_parts() -> None:
    assert parse("12I3") == Op(12, Kind.I, 3)
    assert parse("( 7B1 ; 0F3 ) OVERLAP_F_B") == Pair(Op(0, Kind.F, 3), Op(7, Kind.B, 1))


@pytest.mark.parametrize(
    "text",
    ["", "F0", "0F", "0X0", "0f0", "0F0x", " 0F0", "-1F0", "0F0;1B0", "０F０", "(0F0)OVERLAP_F_B", "(0F0;1F0)OVERLAP_F_B",
     "(0F0;1I0)OVERLAP_F_B", "(0F0;1B0)", "(0F0;1B0)OVERLAP_F_Bx"],
)  # fmt: skip
def test_refuses_anything_else(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected an operation|an overlapped pair"):
        parse(text)


def test_numbers_are_a_bijection() -> None:
    index = OpIndex(stages=3, microbatches=5)
    singles = [Op(s, kind, m) for kind in (*Kind, *Send) for s in range(3) for m in range(5)]
    assert [index.number(op) for op in singles] == list(range(index.size))
    assert [index.op(number) for number in range(index.size)] == singles
    pairs = [Pair(f, b) for f in singles[:15] for b in singles[15:30]]
    numbers = [index.number(pair) for pair in pairs]
    assert len(set(numbers)) == len(pairs)
    assert min(numbers) >= index.size
    assert [index.op(number) for number in numbers] == pairs
    everything = [*range(index.size), *numbers]
    assert index.texts(everything) == [str(op) for op in singles + pairs]


def test_texts_of_pieces_say_which() -> None:
    index = OpIndex(stages=2, microbatches=3, pieces=2)
    texts = index.texts(range(index.size))
    assert texts == [str(index.op(number)) for number in range(index.size)]
    assert {"1W2.0", "1W2.1"} <= set(texts)
    assert [index.number(index.op(number)) for number in range(index.size)] == list(range(index.size))


def test_a_number_that_no_operation_has_is_refused() -> None:
    with pytest.raises(ValueError, match="no operation number -1"):
        OpIndex(2, 3).op(-1)


@pytest.mark.parametrize(("op", "named"), [("3F0", "stage 3"), ("0F5", "microbatch 5")])
def test_numbers_stay_inside_the_pipeline(op: str, named: str) -> None:
    with pytest.raises(ValueError, match=f"there is no {named}"):
        OpIndex(3, 5).number(parse(op))
