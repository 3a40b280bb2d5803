"""A bound SELECT: what the binder makes of a text, and what a registration keeps.

The *predicate* (stream and WHERE, in normal form) is what gets matched and shared; outputs and
window belong to the registration and apply when it is invoked.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from datastem.schema import Column
from querystem.expressions import Expression, from_json, to_json
from results.window import Window


@dataclass(frozen=True, slots=True)
class Output:
    name: str
    expression: Expression


@dataclass(frozen=True, slots=True)
class Query:
    stream: str
    outputs: tuple[Output, ...]
    where: Expression
    window: Window

    @property
    def columns(self) -> tuple[Column, ...]:
        return tuple(Column(output.name, output.expression.type) for output in self.outputs)

    @property
    def predicate_key(self) -> str:
        """Equal for equal predicates over one stream: the normal form as text."""
        return json.dumps(to_json(self.where), separators=(",", ":"))

    def to_json(self) -> dict[str, Any]:
        return {
            "stream": self.stream,
            "outputs": [[output.name, to_json(output.expression)] for output in self.outputs],
            "where": to_json(self.where),
            "window": self.window.to_json(),
        }

    @classmethod
    def from_json(cls, form: Mapping[str, Any]) -> Query:
        return cls(
            stream=form["stream"],
            outputs=tuple(Output(name, from_json(expr)) for name, expr in form["outputs"]),
            where=from_json(form["where"]),
            window=Window.from_json(form["window"]),
        )
