"""The figures of a schedule in the user's units, as results and rows of tables have them."""

from __future__ import annotations

from ppopt.schedule import Number, Schedule


class Figures:
    """What follows from :attr:`schedule`, in the user's units: integers where whole, else the nearest doubles.

    ``None`` throughout where there is no schedule.
    """

    schedule: Schedule | None

    @property
    def makespan(self) -> Number | None:
        """From the first start to the last end, over all devices."""
        return None if self.schedule is None else self.schedule.pipeline.time(self.schedule.makespan)

    @property
    def device_span(self) -> Number | None:
        """The largest time from a device's first start to its last end."""
        return None if self.schedule is None else self.schedule.pipeline.time(self.schedule.device_span)

    @property
    def work(self) -> tuple[Number, ...] | None:
        """Per device, the time spent computing."""
        return None if self.schedule is None else tuple(map(self.schedule.pipeline.time, self.schedule.work))

    @property
    def peak_memory(self) -> tuple[Number, ...] | None:
        """Per device, the most that it holds."""
        return None if self.schedule is None else tuple(map(self.schedule.pipeline.amount, self.schedule.peak_memory))

    @property
    def bubble_ratio(self) -> float | None:
        """``1 - sum(work) / (D * makespan)``."""
        return None if self.schedule is None else self.schedule.bubble_ratio

    @property
    def span_bubble_ratio(self) -> float | None:
        """``1 - max_d work_d / max_d span_d``."""
        return None if self.schedule is None else self.schedule.span_bubble_ratio

    @property
    def summed_span_bubble_ratio(self) -> float | None:
        """``1 - sum(work) / sum_d span_d``."""
        return None if self.schedule is None else self.schedule.summed_span_bubble_ratio

    @property
    def speed_up(self) -> float | None:
        """How many times as long one device takes that runs everything, each operation by itself and once."""
        return None if self.schedule is None else self.schedule.speed_up

    @property
    def efficiency(self) -> float | None:
        """The share of the devices' time in which they do what has to be done; work that is repeated is none."""
        return None if self.schedule is None else self.schedule.efficiency

    @property
    def within_memory(self) -> bool | None:
        """Whether no device exceeds its memory limit."""
        return None if self.schedule is None else self.schedule.within_memory
