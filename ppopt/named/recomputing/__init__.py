"""Named schedules where it is open which stages recompute: each with the stages that suit it best under the memory limit.

*An order that the constraints pin* is the same whichever stages recompute, and so is a user's own. More recomputing then makes no
operation start or end earlier, and no device hold more (:class:`~ppopt.timing.recomputed.Recomputed`). Two things follow. Only
those sets of stages matter that fit the limit and no longer do with one stage less. And the time that the order takes where just
the settled stages recompute is a lower bound for every set that has them. Branch and bound over the stages
(:mod:`~ppopt.named.recomputing.tree`) is thus exact, as long as its budget of timings lasts. A device span may get shorter where
recomputing elsewhere delays the device's start: its bound takes the latest start, and sets that fit are divided on until that
bound is reached.

*An order that is made from costs* is another for each set, and nothing is monotonic. The same holds where transfers hold links:
an operation that takes longer may let another transfer go first; and where activations are copied to the host, which give room in
place of recomputing. Then it is a local search (:mod:`~ppopt.named.recomputing.local`), which need not find the best set.

*With layers* a stage has many options; there each device recomputes as little as fits (:mod:`~ppopt.named.recomputing.levels`).

All budgets are numbers of timings and of orders, so that the answer is always the same.
"""

from ppopt.named.recomputing.rows import best_of, compare_freely, of_order_freely, placed_freely

__all__ = ["best_of", "compare_freely", "of_order_freely", "placed_freely"]
