"""A schedule is a set of ordering constraints; this is their vocabulary.

Microbatches are alike, so a rule is said once, over *streams* of operations, and not once per microbatch. The k-th
operation of a stream is written ``X(k)``. :mod:`~ppopt.constraints.words` are data; :mod:`~ppopt.constraints.rules` says what
every schedule must obey, :mod:`~ppopt.constraints.cuts` what may be added without losing the optimum.
:mod:`~ppopt.constraints.graphs` compiles the words to a graph of families, for bounds, modulo scheduling and cuts;
:mod:`~ppopt.constraints.expansion` is the one place where they become relations between single operations.
"""

from ppopt.constraints.checked import check_words, streams_of
from ppopt.constraints.copies import copies_of, may_copy
from ppopt.constraints.cuts import (
    alike,
    always_split,
    cuts_of,
    free_choices,
    in_order,
    room_in_order,
    splitting_is_free,
    weights_in_order,
)
from ppopt.constraints.expansion import chosen, expand, instances, margins, operations, shifted
from ppopt.constraints.families import FamilyGraph, Held, Machine, Precedence, Reservoir
from ppopt.constraints.graphs import Share, graph_of, graphs_of, relaxed_graph, relaxed_graphs, shared
from ppopt.constraints.in_turn import waiting_in_turn
from ppopt.constraints.joined import joined
from ppopt.constraints.lives import lives
from ppopt.constraints.own import device_of_family, own_words, spread
from ppopt.constraints.pairs import pairs_of, pairs_save_time
from ppopt.constraints.pieces import in_pieces
from ppopt.constraints.rules import (
    Hop,
    backward_kinds,
    computing,
    data_of,
    data_of_route,
    links_of,
    margins_of,
    memory_between,
    memory_of,
    rules_of,
    transfers_of,
    turns_of,
    weights_of,
    without_links,
)
from ppopt.constraints.turns import microbatch_turns
from ppopt.constraints.weight_order import Backward, equal_weights, weights_in_turn
from ppopt.constraints.words import (
    Away,
    Capacity,
    Dealt,
    Exclusive,
    Family,
    Hold,
    Lead,
    Listed,
    Maybe,
    OneOf,
    Pairable,
    Precede,
    Stream,
    Tail,
    Together,
    Turn,
    Turns,
    Word,
    chain,
    run,
    select,
    sends,
)

__all__ = [
    "Away",
    "Backward",
    "Capacity",
    "Dealt",
    "Exclusive",
    "Family",
    "FamilyGraph",
    "Held",
    "Hold",
    "Hop",
    "Lead",
    "Listed",
    "Machine",
    "Maybe",
    "OneOf",
    "Pairable",
    "Precede",
    "Precedence",
    "Reservoir",
    "Share",
    "Stream",
    "Tail",
    "Together",
    "Turn",
    "Turns",
    "Word",
    "alike",
    "always_split",
    "backward_kinds",
    "chain",
    "check_words",
    "chosen",
    "computing",
    "copies_of",
    "cuts_of",
    "data_of",
    "data_of_route",
    "device_of_family",
    "equal_weights",
    "expand",
    "free_choices",
    "graph_of",
    "graphs_of",
    "in_order",
    "in_pieces",
    "instances",
    "joined",
    "links_of",
    "lives",
    "margins",
    "margins_of",
    "may_copy",
    "memory_between",
    "memory_of",
    "microbatch_turns",
    "operations",
    "own_words",
    "pairs_of",
    "pairs_save_time",
    "relaxed_graph",
    "relaxed_graphs",
    "room_in_order",
    "rules_of",
    "run",
    "select",
    "sends",
    "shared",
    "shifted",
    "splitting_is_free",
    "spread",
    "streams_of",
    "transfers_of",
    "turns_of",
    "waiting_in_turn",
    "weights_in_order",
    "weights_in_turn",
    "weights_of",
    "without_links",
]
