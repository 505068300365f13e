"""Real runs: what was run when, beside what was planned."""

from ppopt.runs.beside import Beside, beside
from ppopt.runs.document import document
from ppopt.runs.run import Run, read_run
from ppopt.runs.timeline import RunSchedule, gaps_of, idle_of, schedule_of

__all__ = ["Beside", "Run", "RunSchedule", "beside", "document", "gaps_of", "idle_of", "read_run", "schedule_of"]
