"""What the files of a real run say, each of one rank: traces, timing records, event times, dumps."""

from ppopt.files.recorded.reading import read_files, read_recorded
from ppopt.files.recorded.record import BlockError, Clock, ProfileError, Ran, Recorded, Times

__all__ = ["BlockError", "Clock", "ProfileError", "Ran", "Recorded", "Times", "read_files", "read_recorded"]
