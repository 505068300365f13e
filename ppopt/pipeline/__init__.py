"""The problem: devices, microbatches, routes, and what everything costs."""

from ppopt.pipeline.amounts import Amounts, least_limits, room_to_split, splitting_takes_memory
from ppopt.pipeline.arrays import BoolArray, IntArray, computed, halves, kind_of, pairs
from ppopt.pipeline.checks import MAX_OPS
from ppopt.pipeline.choices import ANY
from ppopt.pipeline.fewer import fewer_devices
from ppopt.pipeline.layers import Layer, Layers, Level
from ppopt.pipeline.mix import GIVEN, OPEN, Mix
from ppopt.pipeline.mix_routes import Group, groups_of, way_of_microbatch
from ppopt.pipeline.model import MAX_DEVICES, MAX_MICROBATCHES, Pipeline
from ppopt.pipeline.offload import Engine, Offload
from ppopt.pipeline.partitions import BEST
from ppopt.pipeline.parts import (
    ChunksMisplaced,
    Costs,
    Links,
    Memory,
    Number,
    PipelineError,
    Table,
    TooLittleMemory,
    Value,
    as_number,
    exact,
    plain,
)
from ppopt.pipeline.recompute import CHOOSE, Recompute, in_words
from ppopt.pipeline.routes import MAX_STAGES, PLACEMENTS, Routes, routes_of
from ppopt.pipeline.scaling import alike
from ppopt.pipeline.ticks import Ticks
from ppopt.pipeline.traffic import DataParallel
from ppopt.pipeline.units import Units, microseconds

__all__ = [
    "ANY",
    "BEST",
    "CHOOSE",
    "GIVEN",
    "MAX_DEVICES",
    "MAX_MICROBATCHES",
    "MAX_OPS",
    "MAX_STAGES",
    "OPEN",
    "PLACEMENTS",
    "Amounts",
    "BoolArray",
    "ChunksMisplaced",
    "Costs",
    "DataParallel",
    "Engine",
    "Group",
    "IntArray",
    "Layer",
    "Layers",
    "Level",
    "Links",
    "Memory",
    "Mix",
    "Number",
    "Offload",
    "Pipeline",
    "PipelineError",
    "Recompute",
    "Routes",
    "Table",
    "Ticks",
    "TooLittleMemory",
    "Units",
    "Value",
    "alike",
    "as_number",
    "computed",
    "exact",
    "fewer_devices",
    "groups_of",
    "halves",
    "in_words",
    "kind_of",
    "least_limits",
    "microseconds",
    "pairs",
    "plain",
    "room_to_split",
    "routes_of",
    "splitting_takes_memory",
    "way_of_microbatch",
]
