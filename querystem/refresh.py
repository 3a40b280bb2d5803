"""REFRESH: at which instants, or with which rows, an answer changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from querystem.expressions import Expression, from_json, predicate_key, to_json


@dataclass(frozen=True, slots=True)
class RefreshEvery:
    """The answer changes at the multiples of `period`, counted from 1970-01-01 UTC in the query's
    NOW."""

    period: int

    def point(self, now: int) -> int:
        """The last refresh point at `now`."""
        return now - now % self.period

    def following(self, now: int) -> int:
        """The first refresh point after `now`."""
        return self.point(now) + self.period


@dataclass(frozen=True, slots=True)
class RefreshOn:
    """The answer changes at the position of each row of `stream` that satisfies `where`."""

    stream: str
    where: Expression

    @property
    def predicate_key(self) -> str:
        return predicate_key(self.where)


Refresh = RefreshEvery | RefreshOn


def refresh_to_json(refresh: Refresh | None) -> dict[str, Any] | None:
    match refresh:
        case None:
            return None
        case RefreshEvery(period):
            return {"kind": "every", "period": period}
        case RefreshOn(stream, where):
            return {"kind": "on", "stream": stream, "where": to_json(where)}


def refresh_from_json(form: Mapping[str, Any] | None) -> Refresh | None:
    if form is None:
        return None
    match form["kind"]:
        case "every":
            return RefreshEvery(form["period"])
        case "on":
            return RefreshOn(form["stream"], from_json(form["where"]))
        case kind:
            raise ValueError(f"a refresh of an unknown kind: {kind}")
