"""Functions that users define: names for expressions, which take the place of their calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from datastem.schema import Column
from datastem.types import Type, parse_type

# How many functions may stand inside each other.
MAX_FUNCTIONS_DEEP = 16
MAX_PARAMETERS = 32


@dataclass(frozen=True, slots=True)
class FunctionDefinition:
    """A function: its expression as text, the parameters that the text names, and the type of its
    value when the function was created."""

    name: str
    parameters: tuple[Column, ...]
    text: str
    type: Type

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "parameters": [[column.name, str(column.type)] for column in self.parameters],
            "text": self.text,
            "type": str(self.type),
        }

    @classmethod
    def from_json(cls, form: Mapping[str, Any]) -> FunctionDefinition:
        parameters = tuple(Column(name, parse_type(type_)) for name, type_ in form["parameters"])
        return cls(form["name"], parameters, form["text"], parse_type(form["type"]))
