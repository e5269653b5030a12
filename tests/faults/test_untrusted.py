"""Files from others: read as tensors and plain data only; names from others: printed, never obeyed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from tests.faults.conftest import Bench
from tta_bench import tree
from tta_bench.checkpoint import Checkpoints, Damaged
from tta_bench.exchange import Checkpoint

ROOT = Path(__file__).parents[2]
SHIPPED = [
    path for name in ("tta_bench", "methods", "quantizers") for path in sorted((ROOT / name).rglob("*.py"))
]
# What can run code that stands in a file, or hand a text to a shell.
FORBIDDEN = {
    "pickle": r"\b(pickle|cPickle|_pickle|dill|cloudpickle|joblib|shelve|marshal)\b",
    "torch.load of anything": r"torch\.load\((?!.*weights_only=True)",
    "torch.save": r"torch\.save\((?!.*file\))",
    "numpy objects": r"allow_pickle\s*=\s*True|np\.load\((?!.*allow_pickle=False)",
    "yaml objects": r"yaml\.(unsafe_load|full_load|UnsafeLoader|FullLoader|Loader\b)|yaml\.load\((?!.*_UniqueKeyLoader)",
    "a shell": r"shell\s*=\s*True|os\.system|os\.popen|commands\.getoutput",
    "evaluation": r"(?<![\w.])(eval|exec)\(",
}


@pytest.mark.parametrize("what", FORBIDDEN)
def test_nothing_shipped_can_run_what_stands_in_a_file(what: str) -> None:
    assert len(SHIPPED) > 100
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in SHIPPED
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if re.search(FORBIDDEN[what], line)
    ]
    assert not found
