"""YAML → Benchmark: `load` reads and checks a benchmark file."""

from tta_bench.config.benchmark import Benchmark, PluginChoice, Tuned, fetch, make, make_data
from tta_bench.config.loading import load, parse

__all__ = ["Benchmark", "PluginChoice", "Tuned", "fetch", "load", "make", "make_data", "parse"]
