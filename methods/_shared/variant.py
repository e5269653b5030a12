"""The parameter `variant` of methods whose released code differs from what their paper describes."""

from __future__ import annotations

from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator

FORMER_NAMES = MappingProxyType({"as_released": "released", "foa": "released", "official": "corrected"})


def _refuse_former_name(value: Any) -> Any:
    if isinstance(value, str) and value in FORMER_NAMES:
        raise ValueError(f"it is now called {FORMER_NAMES[value]!r}")
    return value


# corrected: as the method is meant. released: as the code behind the published tables, errors included.
VariantName = Annotated[Literal["corrected", "released"], BeforeValidator(_refuse_former_name)]
