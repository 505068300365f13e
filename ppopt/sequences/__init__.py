"""Sequences of several lengths: lists of them, how frameworks put them into microbatches, and how one is cut into pieces."""

from ppopt.sequences.bags import Bags, causal_attention, full_attention, imbalance, karmarkar_karp, lengths_of
from ppopt.sequences.drawn import GENERATORS, generated, multipliers
from ppopt.sequences.dynapipe import dynapipe_cut
from ppopt.sequences.packers import PACKERS, Packer, packed
from ppopt.sequences.pieces import balanced_pieces, piece_costs
from ppopt.sequences.wlb import Waiting, wlb_step

__all__ = [
    "GENERATORS",
    "PACKERS",
    "Bags",
    "Packer",
    "Waiting",
    "balanced_pieces",
    "causal_attention",
    "dynapipe_cut",
    "full_attention",
    "generated",
    "imbalance",
    "karmarkar_karp",
    "lengths_of",
    "multipliers",
    "packed",
    "piece_costs",
    "wlb_step",
]
