"""Pictures of schedules: a text grid, Gantt charts, memory over time, frontiers and bubble curves.

Nothing is imported here: :mod:`ppopt.pictures.text` needs no matplotlib, the other modules do.
"""
