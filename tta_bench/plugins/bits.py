"""Bit-widths of weights and activations, and the field type of a quantizer's `bits`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

PATTERN = r"^([Ff][Pp]32|[Ww]\d+[Aa]\d+)$"


@dataclass(frozen=True)
class Bits:
    """Bit-widths of weights and activations."""

    weight: int = 32
    activation: int = 32

    @classmethod
    def parse(cls, text: str) -> Bits:
        """`Bits` of a text such as W8A8; FP32 is 32/32."""
        if text.upper() == "FP32":
            return cls()
        match = re.fullmatch(r"[Ww](\d{1,4})[Aa](\d{1,4})", text)
        if match is None:
            raise ValueError(f'"{text}" is not a bit-width; write it like W8A8')
        return cls(int(match[1]), int(match[2]))

    def __str__(self) -> str:
        full = self.weight == self.activation == 32
        return "FP32" if full else f"W{self.weight}A{self.activation}"


@dataclass(frozen=True)
class BitRange:
    """Annotation of a text field with bit-widths: checks them, and spells w8a8 as W8A8."""

    weight: tuple[int, int] = (1, 32)
    activation: tuple[int, int] = (1, 32)

    def canonical(self, text: str) -> str:
        """The one spelling of bit-widths in the range."""
        try:
            bits = Bits.parse(text)
        except ValueError:
            raise ValueError(f"it must be {self.words}") from None
        for found, (least, most) in ((bits.weight, self.weight), (bits.activation, self.activation)):
            if not least <= found <= most:
                raise ValueError(f"it must be {self.words}")
        return str(bits)

    @property
    def span(self) -> str:
        """The range: `W2A2 … W8A8`."""
        ends = (str(Bits(w, a)) for w, a in zip(self.weight, self.activation, strict=True))
        return " … ".join(dict.fromkeys(ends))

    @property
    def words(self) -> str:
        """The range in a sentence."""
        least, _, most = self.span.partition(" … ")
        return f"a bit-width from {least} to {most}" if most else least

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self.canonical, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return handler(schema) | {"pattern": PATTERN, "title": self.span, "description": self.words}


BitWidth = Annotated[str, BitRange()]
