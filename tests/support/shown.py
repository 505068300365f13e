"""The named schedules that are shown beside a model that says nothing of weights."""

from ppopt.named import NAMED

SHOWN = [name for name, definition in NAMED.items() if definition.work_map is None]
