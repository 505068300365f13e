"""Perceptrons cut along data, tensors and stages, and the two published cost models that time them operation by operation."""

from ppopt.perceptron.cost_models import COST_MODELS, QUIRKS, CostModel, cost_model
from ppopt.perceptron.pipelines import pipeline_of
from ppopt.perceptron.program import Operation, program
from ppopt.perceptron.simulation import Simulation, simulate, simulated
from ppopt.perceptron.sizes import Grid, Perceptron, grids

__all__ = [
    "COST_MODELS",
    "QUIRKS",
    "CostModel",
    "Grid",
    "Operation",
    "Perceptron",
    "Simulation",
    "cost_model",
    "grids",
    "pipeline_of",
    "program",
    "simulate",
    "simulated",
]
