"""A model file whose order is written in a file beside it."""

from pathlib import Path

HEAD = "[pipeline]\ndevices = 2\nmicrobatches = 2\n"
ROWS = [["0F0", "0F1", "0B0", "0B1"], ["1F0", "1B0", "1F1", "1I1", "1W1"]]
CSV = "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1I1,1W1\n"


def written(folder: Path) -> Path:
    """The folder, now with ``mine.csv`` and the ``model.toml`` that names it."""
    (folder / "mine.csv").write_text(CSV)
    (folder / "model.toml").write_text(HEAD + 'order = "mine.csv"\n')
    return folder
