"""The contract of every plugin-kind; `tta-bench check plugin-name` prints the outcome of each check."""

from tta_bench.testing import check


def test_the_contract_is_kept() -> None:
    check("plugin-group", "plugin-name")
