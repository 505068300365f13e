"""The tests, by room; what several share is in ``support``."""
