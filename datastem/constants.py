"""Constants of the seven types: as Python values, and as JSON."""

from __future__ import annotations

import datetime
import decimal
import math
from typing import Any, TypeAlias

from datastem.instants import from_micros, to_micros
from datastem.types import Kind, Type

# None is NULL. An instant is an aware datetime.
Constant: TypeAlias = (
    bool | int | float | decimal.Decimal | str | datetime.datetime | datetime.date | None
)


def constant_to_json(value: Constant) -> Any:
    """Return a constant in a form that `json.dumps` writes and `constant_from_json` reads back
    exactly."""
    match value:
        case datetime.datetime():
            return to_micros(value)
        case decimal.Decimal() | datetime.date():
            return str(value)
        case float() if not math.isfinite(value):
            return str(value)
    return value


def constant_from_json(form: Any, type_: Type) -> Constant:
    if form is None:
        return None
    match type_.kind:
        case Kind.DECIMAL:
            return decimal.Decimal(form)
        case Kind.DATE:
            return datetime.date.fromisoformat(form)
        case Kind.TIMESTAMP:
            return from_micros(form)
        case Kind.DOUBLE:
            return float(form)
    value: Constant = form
    return value
