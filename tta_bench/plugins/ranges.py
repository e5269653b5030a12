"""The values that fields of plugins accept. A range is part of a field's type, so that `validate`,
`tta-bench list --long`, the documentation and a JSON schema all read it from the class.

    lr: Positive = 1e-3
    share: Annotated[float, Interval(gt=0, le=1)] = 0.5

Anything that pydantic understands in `Annotated` is enforced, in YAML and in Python alike.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from annotated_types import Ge, Gt, Interval
from pydantic import ConfigDict, PydanticUserError, TypeAdapter, ValidationError
from pydantic.errors import PydanticInvalidForJsonSchema

from tta_bench.errors import shown
from tta_bench.plugins.range_text import bounds, in_short, in_words

Positive = Annotated[float, Gt(0)]
NonNegative = Annotated[float, Ge(0)]
Fraction = Annotated[float, Interval(ge=0, le=1)]
Momentum = Annotated[float, Interval(ge=0, lt=1)]  # at 1 old values would never fade
Count = Annotated[int, Ge(1)]
CountOrZero = Annotated[int, Ge(0)]
Seed = Annotated[int, Interval(ge=0, lt=2**32)]  # the range that every random generator accepts

OUT_OF_BOUNDS = {"greater_than", "greater_than_equal", "less_than", "less_than_equal"}
CONFIG = ConfigDict(allow_inf_nan=False, arbitrary_types_allowed=True)


@dataclass(frozen=True)
class FieldType:
    """The type of one field, with its range."""

    adapter: TypeAdapter[Any]

    @cached_property
    def schema(self) -> Mapping[str, Any]:
        """Its JSON schema; empty for a type that has none."""
        try:
            return self.adapter.json_schema()
        except PydanticInvalidForJsonSchema:
            return {}

    @property
    def words(self) -> str:
        """The values it accepts, for a sentence: `a whole number of at least 1`."""
        return in_words(self.schema)

    @property
    def short(self) -> str:
        """Its range, for a table: `≥ 1`; empty if it has none."""
        return in_short(self.schema)

    def takes(self, kind: str) -> bool:
        """Whether it accepts values of a JSON type."""
        return kind in {part.get("type") for part in (self.schema, *self.schema.get("anyOf", ()))}

    def fit(self, value: Any) -> Any:
        """The value converted to the field's type; text may become a number, as YAML reads 1e-3 as text."""
        if isinstance(value, bool) and self.schema and not self.takes("boolean"):
            raise ValueError(f"{value} does not fit: it must be {self.words}, not true or false.")
        try:
            fitted = self.adapter.validator.validate_python(value)  # three times as fast as the adapter
        except ValidationError as error:
            raise ValueError(f"{shown(value)} does not fit: {self._complaint(error)}.") from None
        if isinstance(fitted, int) and abs(fitted) >= 2**63:
            raise ValueError(f"{shown(value)} does not fit: it is too large. Give a smaller number.")
        return fitted

    def _complaint(self, error: ValidationError) -> str:
        first, kinds = error.errors()[0], {each["type"] for each in error.errors()}
        if kinds == {"value_error"}:  # the text of the field's own validator
            return str(first["ctx"]["error"]).rstrip(".")
        inside_a_list = first["loc"] and "anyOf" not in self.schema
        if inside_a_list or not self.schema:
            return first["msg"]
        if kinds == {"finite_number"}:
            return f"it is not finite, and must be {self.words}"
        small_or_large = kinds <= OUT_OF_BOUNDS and "anyOf" not in self.schema
        return f"it must be {bounds(self.schema) if small_or_large else self.words}"


@cache
def field_types(cls: type) -> Mapping[str, FieldType]:
    """The types of a plugin's fields by name; TypeError if one of them cannot be understood."""
    try:
        hints = get_type_hints(cls, include_extras=True)
        return {
            field.name: FieldType(TypeAdapter(_inherited(cls, field.name, hints[field.name]), config=CONFIG))
            for field in dataclasses.fields(cls)
            if field.init
        }
    except (NameError, AttributeError, TypeError, PydanticUserError) as error:
        raise TypeError(f"{cls.__name__}: the type of a field cannot be understood: {error}") from error


def fit_fields_(plugin: Any) -> None:
    """Convert every field of a plugin to its type; ValueError lists all that do not fit."""
    cls: type = type(plugin)
    wrong = []
    for name, kind in field_types(cls).items():
        value = getattr(plugin, name)
        try:
            fitted = kind.fit(value)
        except ValueError as error:
            wrong.append(f"{name}: {error}")
            continue
        if fitted is not value:
            object.__setattr__(plugin, name, fitted)  # works for frozen dataclasses, too
    if wrong:
        raise ValueError(" ".join(wrong))


def _inherited(cls: type, name: str, hint: Any) -> Any:
    """A field's type; a field redeclared without a range keeps the range of its base class."""
    for base in cls.__mro__[1:-1]:
        wider = get_type_hints(base, include_extras=True).get(name)
        if get_origin(wider) is Annotated and get_args(wider)[0] is hint:
            return wider
    return hint
