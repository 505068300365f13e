"""A step of a search: a bound, an improvement or a decision."""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

if TYPE_CHECKING:
    from ppopt.search.run import Run


SCATTERED = "backwards run on other devices than their forwards"
"""Why a step does not apply that takes a stage's operations to be on one device."""
DIFFERENT = "microbatches differ"
"""Why a step does not apply that takes microbatches to be alike, or takes long where each has a route of its own."""


class Kind(Enum):
    """What a step does for the answer."""

    BOUND = "raises the bound"
    IMPROVE = "finds better schedules"
    DECIDE = "asks whether there are schedules up to some length, which does either"


class Needs(Enum):
    """When a step is worth taking."""

    NOTHING = "it is taken in any case"
    GAP = "the gap is larger than asked for"
    INTEREST = "and what lies in the gap is of interest"
    TIME = "and there is time left"


class Taken(NamedTuple):
    """What one step of the search did."""

    name: str
    seconds: float
    outcome: str


class Step(ABC):
    """One way to go on. A search has one object of each step that it takes; what that may go on with later, it keeps itself."""

    name: ClassVar[str]
    kind: ClassVar[Kind]
    needs: ClassVar[Needs] = Needs.TIME
    copies: ClassVar[bool] = False
    """Whether it knows of activations that are copied to the host."""
    gained: bool | None = None
    """Whether it found a better schedule or raised the bound when it was last taken; ``None``: it was not taken yet."""

    def applies(self, run: Run) -> str | None:
        """``None`` if the step can do something; else the reason why it cannot, in words for the user."""
        return None

    @abstractmethod
    def run(self, run: Run, seconds: float, **options: Any) -> str | None:
        """Take the step for about ``seconds`` of the run's clock; what came of it, in words.

        ``None``: it has noted single questions itself (:meth:`Run.note`). ``options`` are those of the strategy's turn.
        """
