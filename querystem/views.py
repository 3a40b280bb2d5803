"""Views: names for queries, which FROM takes like streams."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from datastem.schema import Column
from datastem.types import parse_type

# How many views may stand inside each other.
MAX_VIEWS_DEEP = 16


class Delivery(enum.Enum):
    """The word before VIEW. It changes nothing, because every answer can be read whole and as
    changes; it is only stored."""

    PLAIN = ""
    COMPLETE = "COMPLETE"
    STREAMED = "STREAMED"


@dataclass(frozen=True, slots=True)
class ViewDefinition:
    """A view: its query as text, and the columns the query had when the view was created.

    The query sees the columns that its streams had at the packed position `bound_at`, under the
    labels that they had then.
    """

    name: str
    text: str
    columns: tuple[Column, ...]
    delivery: Delivery = Delivery.PLAIN
    bound_at: int = 0

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "text": self.text,
            "columns": [[column.name, str(column.type)] for column in self.columns],
            "delivery": self.delivery.value,
            "bound_at": self.bound_at,
        }

    @classmethod
    def from_json(cls, form: Mapping[str, Any]) -> ViewDefinition:
        columns = tuple(Column(name, parse_type(type_)) for name, type_ in form["columns"])
        delivery = Delivery(form["delivery"])
        return cls(form["name"], form["text"], columns, delivery, form["bound_at"])
