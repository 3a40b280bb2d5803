"""REFRESH: at which instants, or with which rows, an answer or a part of it changes."""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from querystem.expressions import Expression, from_json, predicate_key, to_json


@dataclass(frozen=True, slots=True)
class RefreshEvery:
    """The answer changes at the multiples of `period`, counted in the query's NOW from `offset`,
    which is less than the period, after 1970-01-01 UTC."""

    period: int
    offset: int = 0

    def point(self, now: int) -> int:
        """Return the last refresh point at `now`."""
        return now - (now - self.offset) % self.period

    def following(self, now: int) -> int:
        """Return the first refresh point after `now`."""
        return self.point(now) + self.period


@dataclass(frozen=True, slots=True)
class RefreshOn:
    """The answer changes at the position of each row of `stream` that satisfies `where`."""

    stream: str
    where: Expression

    @property
    def predicate_key(self) -> str:
        return predicate_key(self.where)


@dataclass(frozen=True, slots=True)
class RefreshAny:
    """The answer changes at the points of all its parts: the latest of their last points counts."""

    parts: tuple[RefreshEvery | RefreshOn, ...]


Refresh: TypeAlias = RefreshEvery | RefreshOn | RefreshAny


class PartKind(enum.Enum):
    """The parts of a query that may have refresh points."""

    WHOLE = enum.auto()
    QUERY = enum.auto()  # a query inside another
    LEG = enum.auto()


@dataclass(frozen=True, slots=True)
class RefreshedPart:
    """A part of a query that changes at refresh points only. It has the `legs` of these numbers;
    `moving` says of each whether a window inside the part moves it with NOW. One that is `of_view`
    stands for a view, or in the text of one."""

    kind: PartKind
    refresh: Refresh
    legs: range
    moving: tuple[bool, ...]
    of_view: bool = False


def points_of(refresh: Refresh | None) -> tuple[RefreshEvery | RefreshOn, ...]:
    """Return the parts of a REFRESH, or itself."""
    if refresh is None:
        return ()
    return refresh.parts if isinstance(refresh, RefreshAny) else (refresh,)


def periodic(refresh: Refresh | None) -> tuple[RefreshEvery, ...]:
    """Return each REFRESH EVERY of a REFRESH."""
    return tuple(part for part in points_of(refresh) if isinstance(part, RefreshEvery))


def triggers_of(refresh: Refresh | None) -> tuple[RefreshOn, ...]:
    """Return each REFRESH ON of a REFRESH."""
    return tuple(part for part in points_of(refresh) if isinstance(part, RefreshOn))


def common_points(refreshes: Iterable[RefreshEvery]) -> RefreshEvery | None:
    """Return the instants that are points of all; None if no instant is."""
    period, offset = 1, 0
    for refresh in refreshes:
        gap = math.gcd(period, refresh.period)
        if (refresh.offset - offset) % gap:
            return None
        # How many periods lie between the offset so far and one that both have.
        steps = (refresh.offset - offset) // gap * pow(period // gap, -1, refresh.period // gap)
        offset += period * (steps % (refresh.period // gap))
        period = math.lcm(period, refresh.period)
    return RefreshEvery(period, offset % period)


def refresh_to_json(refresh: Refresh | None) -> dict[str, Any] | None:
    match refresh:
        case None:
            return None
        case RefreshEvery(period, offset):
            return {"kind": "every", "period": period} | ({"offset": offset} if offset else {})
        case RefreshOn(stream, where):
            return {"kind": "on", "stream": stream, "where": to_json(where)}
        case RefreshAny(parts):
            return {"kind": "any", "parts": [refresh_to_json(part) for part in parts]}


def refresh_from_json(form: Mapping[str, Any] | None) -> Refresh | None:
    if form is None:
        return None
    if form["kind"] == "any":
        return RefreshAny(tuple(_points_from_json(part) for part in form["parts"]))
    return _points_from_json(form)


def _points_from_json(form: Mapping[str, Any]) -> RefreshEvery | RefreshOn:
    match form["kind"]:
        case "every":
            return RefreshEvery(form["period"], form.get("offset", 0))
        case "on":
            return RefreshOn(form["stream"], from_json(form["where"]))
        case kind:
            raise ValueError(f"a refresh of an unknown kind: {kind}")
