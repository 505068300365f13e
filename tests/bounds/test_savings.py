"""What recomputing saves at least costs: compared with every choice of what some layers recompute."""

import itertools
from collections.abc import Iterator
from fractions import Fraction
from random import Random

import pytest

from ppopt.bounds.savings import LARGEST, Levels, Savings
from ppopt.op import Kind


def choices(levels: list[Levels]) -> Iterator[tuple[int, int]]:
    """What some layers take longer together and hold less, for each choice of their levels."""
    for chosen in itertools.product(*([(0, 0), *of] for of in levels)):
        yield sum(time for time, _ in chosen), sum(saved for _, saved in chosen)


def drawn(rng: Random, largest: tuple[int, int] = (9, 9)) -> list[Levels]:
    def level() -> tuple[int, int]:
        return rng.randint(0, largest[0]), rng.randint(0, largest[1])

    return [tuple(level() for _ in range(rng.randint(0, 3))) for _ in range(rng.randint(1, 4))]


@pytest.mark.parametrize("largest", [(9, 9), (2**44, 2**40), (1, 2**40), (2**44, 1)], ids=str)
def test_every_choice_takes_what_the_prices_say(largest: tuple[int, int]) -> None:
    rng, said = Random(str(largest)), 0
    for _ in range(100):
        levels = drawn(rng, largest)
        savings = Savings(levels, [0] * len(levels), [Kind.I])
        for price in savings.prices:
            surplus = sum(savings.surplus(price))
            assert max(price.ticks * sum(savings.most), price.amount * sum(savings.longest), surplus) <= LARGEST
            said += 1
            assert all(price.amount * time >= price.ticks * saved - surplus for time, saved in choices(levels))
        assert max(saved for _, saved in choices(levels)) == sum(savings.most)
        assert min(time for time, saved in choices(levels) if saved == sum(savings.most)) == sum(savings.longest)
    assert said > 50


def test_prices_say_all_but_for_mixtures() -> None:
    """The largest of what they say is the least convex function below all choices."""
    rng, compared = Random(2), 0
    for _ in range(100):
        levels = drawn(rng)
        savings = Savings(levels, [0] * len(levels), [Kind.I])
        rows = [(price, sum(savings.surplus(price))) for price in savings.prices]
        every = sorted(set(choices(levels)))
        for saved in range(sum(savings.most) + 1):
            below = [
                Fraction(a * (d - saved) + c * (saved - b), d - b) if d > b else Fraction(min(a, c))
                for (a, b), (c, d) in itertools.product(every, every)
                if b <= saved <= d
            ]
            least = max((Fraction(price.ticks * saved - surplus, price.amount) for price, surplus in rows), default=Fraction(0))
            assert max(least, 0) == min(below)
            compared += least > 0
    assert compared > 200


def test_nothing_saved_has_no_price() -> None:
    savings = Savings([(), ((4, 0),), ((0, 3),)], [0, 0, 0], [Kind.I])
    assert (savings.prices, savings.most, savings.longest) == ((), [0, 0, 3], [0, 0, 0])
