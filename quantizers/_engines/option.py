"""The field `engine` of a quantizer: who multiplies."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import Any, ClassVar, Literal, TypeAlias

from tta_bench.api import Bits, Model, Quantizer

# simulated: float32 arithmetic on the values of the codes. The others multiply integers.
Engine: TypeAlias = Literal["simulated", "torch-int8", "onnxruntime"]


class EngineOption(Quantizer):
    """Base of schemes with a field `engine`, which a calibration does not depend on."""

    engine: Engine = "simulated"
    no_engine: ClassVar[str] = ""  # why no engine computes this scheme
    added = MappingProxyType({"engine": "simulated"})
    after_calibration = ("engine",)

    @property
    def cpu_only(self) -> bool:  # type: ignore[override]
        return self.engine != "simulated"

    @property
    def norms_in_graph(self) -> bool:  # type: ignore[override]
        return self.engine == "onnxruntime"

    @property
    def engine_package(self) -> str:  # type: ignore[override]
        return "onnxruntime" if self.engine == "onnxruntime" else ""

    def simulated(self) -> Quantizer | None:
        if self.engine == "simulated":
            return None
        scheme: Any = self
        return replace(scheme, engine="simulated")

    def unsupported(self, model: Model) -> str | None:
        """Why the engine cannot compute this scheme at its bit-widths; None if it can."""
        if self.engine == "simulated":
            return None
        if self.no_engine:
            return f"engine {self.engine} cannot compute {self.no_engine}"
        if Bits.parse(self.bits) != Bits(8, 8):
            return f"engine {self.engine} multiplies 8-bit codes, and {self.bits} has others"
        return None
