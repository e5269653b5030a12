"""The contract suite: what every plugin must keep, for built-ins and third parties alike.

    from tta_bench.testing import check
    check("methods", "my-method")        # raises ContractBroken, which lists every problem

`tta-bench check my-method` prints the outcome of each check.
"""

from tta_bench.testing.suite import ContractBroken, Outcome, check, outcomes_of

__all__ = ["ContractBroken", "Outcome", "check", "outcomes_of"]
