"""Studies: memory frontiers, and sweeps over many pipelines whose results are never lost."""
