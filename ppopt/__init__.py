"""ppopt: optimal pipeline-parallel training schedules, with proof."""

__version__ = "0.1.0"
