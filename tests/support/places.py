"""Where things lie in the repository."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE, MODELS, SCRIPTS, DATA = (ROOT / name for name in ("ppopt", "models", "scripts", "tests/data"))
