"""What s2s costs beside hand-written code: ``python -m benchmarks``."""
