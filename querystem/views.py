"""A view: a name for a query, which stands wherever a stream does in FROM."""

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
    """The word before VIEW. Every answer can be had whole and as changes, so it is only kept."""

    PLAIN = ""
    COMPLETE = "COMPLETE"
    STREAMED = "STREAMED"


@dataclass(frozen=True, slots=True)
class ViewDefinition:
    """A view: its query as text, and the columns the query had when the view was created."""

    name: str
    text: str
    columns: tuple[Column, ...]
    delivery: Delivery = Delivery.PLAIN

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "text": self.text,
            "columns": [[column.name, str(column.type)] for column in self.columns],
            "delivery": self.delivery.value,
        }

    @classmethod
    def from_json(cls, form: Mapping[str, Any]) -> ViewDefinition:
        columns = tuple(Column(name, parse_type(type_)) for name, type_ in form["columns"])
        return cls(form["name"], form["text"], columns, Delivery(form["delivery"]))
