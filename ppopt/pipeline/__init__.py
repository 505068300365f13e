"""The problem: devices, microbatches, routes, and what everything costs."""

from ppopt.pipeline.amounts import Amounts, room_to_split, splitting_takes_memory
from ppopt.pipeline.arrays import IntArray, halves, pairs
from ppopt.pipeline.choices import ANY
from ppopt.pipeline.fewer import fewer_devices
from ppopt.pipeline.layers import Layer, Layers, Level
from ppopt.pipeline.model import MAX_DEVICES, MAX_MICROBATCHES, MAX_OPS, Pipeline
from ppopt.pipeline.partitions import BEST
from ppopt.pipeline.parts import (
    ChunksMisplaced,
    Costs,
    DataParallel,
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
from ppopt.pipeline.ticks import Ticks
from ppopt.pipeline.units import Units, microseconds

__all__ = [
    "ANY",
    "BEST",
    "CHOOSE",
    "MAX_DEVICES",
    "MAX_MICROBATCHES",
    "MAX_OPS",
    "MAX_STAGES",
    "PLACEMENTS",
    "Amounts",
    "ChunksMisplaced",
    "Costs",
    "DataParallel",
    "IntArray",
    "Layer",
    "Layers",
    "Level",
    "Links",
    "Memory",
    "Number",
    "Pipeline",
    "PipelineError",
    "Recompute",
    "Routes",
    "Table",
    "Ticks",
    "TooLittleMemory",
    "Units",
    "Value",
    "as_number",
    "exact",
    "fewer_devices",
    "halves",
    "in_words",
    "microseconds",
    "pairs",
    "plain",
    "room_to_split",
    "routes_of",
    "splitting_takes_memory",
]
