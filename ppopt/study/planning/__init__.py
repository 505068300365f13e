"""Plans: into how many parts a training is cut, and its pipeline schedule, for a transformer on a cluster (docs/plans.md)."""

from ppopt.study.planning.question import Question, Recipe, Search, question_of
from ppopt.study.planning.result import Plan, Plans, Space
from ppopt.study.planning.run import plan

__all__ = ["Plan", "Plans", "Question", "Recipe", "Search", "Space", "plan", "question_of"]
