"""What every plugin-kind of tta-bench must keep; `tta-bench check plugin-name` prints it check by check."""

from tta_bench.testing import check


def test_the_contract_is_kept() -> None:
    check("plugin-group", "plugin-name")
