"""What several tests share, each once."""
