"""Images that the tests of all schemes calibrate on."""

from __future__ import annotations

import pytest
from torch import Tensor

from tta_bench.data.cifar10.mini import Cifar10Mini


@pytest.fixture(scope="module")
def data() -> Cifar10Mini:
    """The embedded images."""
    return Cifar10Mini()


@pytest.fixture(scope="module")
def images(data: Cifar10Mini) -> Tensor:
    """Enough of them for a quick calibration."""
    return data.source_images()[:32]
