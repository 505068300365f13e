"""How other runtimes cut the layers of a model into stages: read as they read it, and written for them."""

from ppopt.layouts.hybrid import Hybrid
from ppopt.layouts.layout import Counts, Layout, NotExpressible, Reading, Refused, counts_of, filled, layers_in
from ppopt.layouts.megatron_flags import Megatron
from ppopt.layouts.megatron_text import written
from ppopt.layouts.megatron_writing import command_line, layout_text, megatron_options, older_flags
from ppopt.layouts.of_layers import Cut, Recomputing, cut_of, is_layout, layout_of, recomputing_of
from ppopt.layouts.options import OptionError
from ppopt.layouts.other_runtimes import colossalai, deepspeed, galvatron, mindformers
from ppopt.layouts.recompute import colossalai_recompute, galvatron_recompute, megatron_recompute, mindformers_recompute
from ppopt.layouts.runtimes import RUNTIMES, read
from ppopt.layouts.torchtitan import AUTOMODEL, ModuleNames, TorchTitan, torchtitan_options

__all__ = [
    "AUTOMODEL",
    "RUNTIMES",
    "Counts",
    "Cut",
    "Hybrid",
    "Layout",
    "Megatron",
    "ModuleNames",
    "NotExpressible",
    "OptionError",
    "Reading",
    "Recomputing",
    "Refused",
    "TorchTitan",
    "colossalai",
    "colossalai_recompute",
    "command_line",
    "counts_of",
    "cut_of",
    "deepspeed",
    "filled",
    "galvatron",
    "galvatron_recompute",
    "is_layout",
    "layers_in",
    "layout_of",
    "layout_text",
    "megatron_options",
    "megatron_recompute",
    "mindformers",
    "mindformers_recompute",
    "older_flags",
    "read",
    "recomputing_of",
    "torchtitan_options",
    "written",
]
