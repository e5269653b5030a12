"""Benchmarks of speed, as ratios within one run: `make bench`, or `python -m bench --only forward`."""
