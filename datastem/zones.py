"""Rules of time zones: from which instant on a zone's clock is how far ahead of UTC.

A store has its own rules, which its log brings to every process. Only `machine_rules` asks the
machine; a server calls it once for each zone, to write the rules into the log.
"""

from __future__ import annotations

import functools
import string
import zoneinfo
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import numpy as np

from datastem.arrays import Int64s
from datastem.instants import HOUR, SECOND, SINCE_EVER

MAX_ZONE_NAME = 64
# Rules are known from the first of these years on, before which tzdata itself is unsure, and up to
# the second. Before and after, the first and the last offset hold.
FIRST_YEAR, LAST_YEAR = 1970, 2100
# A zone whose clock was set back by more than this is refused (Antarctica/Vostok, in 1994), because
# windows of days would be longer than anyone expects.
MAX_SETBACK = 3 * HOUR
# Names that do not say which zone they are of.
_OF_THE_MACHINE = {"localtime", "posixrules", "Factory"}
# No two changes of a zone are as close as this.
_PROBE_SECONDS = 24 * 3600


class UnknownZone(Exception):
    """This machine has no rules of a time zone of that name, or none that PSoup takes."""


class ZoneRules:
    """The rules of a zone: from `starts[n]` on its clock is `offsets[n + 1]` ahead of UTC, before
    the first of them `offsets[0]`; in microseconds, ascending.

    `version` counts the rules that a store has had for the zone. Two rules of one name and version
    are equal.
    """

    def __init__(self, name: str, version: int, starts: Int64s, offsets: Int64s) -> None:
        if len(offsets) != len(starts) + 1 or (np.diff(starts) <= 0).any():
            raise ValueError(f"malformed rules of the time zone {name}")
        self.name, self.version = name, version
        # With a first start before all instants, so that each offset has one.
        self.starts: Int64s = np.append(np.int64(SINCE_EVER), starts)
        self.offsets = offsets

    def __eq__(self, value: object) -> bool:
        if not isinstance(value, ZoneRules):
            return NotImplemented
        return (self.name, self.version) == (value.name, value.version)

    def __hash__(self) -> int:
        return hash((self.name, self.version))

    def __repr__(self) -> str:
        return f"ZoneRules({self.name!r}, version {self.version})"

    def of_version(self, version: int) -> ZoneRules:
        """Return the same rules as another version."""
        return ZoneRules(self.name, version, self.starts[1:], self.offsets)

    def has_rules_of(self, rules: ZoneRules) -> bool:
        """Return True if both have the same offsets at all instants."""
        same_starts = np.array_equal(self.starts, rules.starts)
        return same_starts and np.array_equal(self.offsets, rules.offsets)

    def places(self, instants: Int64s) -> Int64s:
        """Return for each instant the number of the offset that holds then."""
        return self.starts.searchsorted(instants, side="right") - 1

    def to_local(self, instants: Int64s) -> Int64s:
        """Return what the zone's clock shows at each instant, as if it were UTC."""
        return instants + self.offsets[self.places(instants)]

    def to_json(self) -> dict[str, Any]:
        seconds = (self.starts[1:] // SECOND).tolist(), (self.offsets // SECOND).tolist()
        return {
            "name": self.name,
            "version": self.version,
            "starts": seconds[0],
            "offsets": seconds[1],
        }

    @classmethod
    def from_json(cls, form: Mapping[str, Any]) -> ZoneRules:
        starts, offsets = (np.array(form[key], np.int64) * SECOND for key in ("starts", "offsets"))
        return cls(form["name"], form["version"], starts, offsets)

    @functools.cached_property
    def packed(self) -> str:
        """The version and the rules as a short text without quotes, equal for equal rules."""
        starts, offsets = self.starts[1:] // SECOND, self.offsets // SECOND
        # A change is how long it comes after the one before, and the offset from then on. There are
        # few different ones, so a change is written as the number of its kind.
        changes = np.stack([np.diff(starts, prepend=0), offsets[1:]], axis=1)
        kinds: dict[tuple[int, ...], int] = {}
        numbers = [kinds.setdefault(tuple(change), len(kinds)) for change in changes.tolist()]
        width = _digits(len(kinds) - 1)
        written = "".join(_number_text(number, width) for number in numbers)
        head = ",".join(f"{after}:{offset}" for after, offset in kinds)
        return f"{self.version} {offsets[0]} {head} {written}".rstrip()


@functools.lru_cache(maxsize=256)
def unpacked(name: str, packed: str) -> ZoneRules:
    """Return the rules of a zone that were written as `ZoneRules.packed`."""
    version, first, *changes = packed.split(" ")
    if not changes:
        return ZoneRules(
            name, int(version), np.empty(0, np.int64), np.array([int(first)], np.int64) * SECOND
        )
    head, written = changes
    kinds = np.array([kind.split(":") for kind in head.split(",")]).astype(np.int64)
    width = _digits(len(kinds) - 1)
    digits = np.array([_DIGITS.index(digit) for digit in written]).reshape(-1, width)
    numbers = digits @ len(_DIGITS) ** np.arange(width)[::-1]
    after, offsets = kinds[numbers].T
    offsets = np.append(np.int64(int(first)), offsets)
    return ZoneRules(name, int(version), np.cumsum(after) * SECOND, offsets * SECOND)


_DIGITS = string.digits + string.ascii_letters


def _digits(greatest: int) -> int:
    """Return how many digits the numbers up to `greatest` are written with."""
    return 1 if greatest < len(_DIGITS) else 2


def _number_text(number: int, width: int) -> str:
    high, low = divmod(number, len(_DIGITS))
    return _DIGITS[low] if width == 1 else _DIGITS[high] + _DIGITS[low]


UTC_RULES = ZoneRules("UTC", 0, np.empty(0, np.int64), np.zeros(1, np.int64))

# The rules of a store's zones, by name.
Zones = Mapping[str, ZoneRules]


@functools.cache
def machine_zones() -> frozenset[str]:
    """Return the names of the zones that this machine has rules of."""
    return frozenset(zoneinfo.available_timezones()) - _OF_THE_MACHINE


def machine_rules(name: str, version: int = 1) -> ZoneRules:
    """Return the rules that this machine has for a zone; raise UnknownZone.

    It takes about 0.1 s.
    """
    if name not in machine_zones():
        raise UnknownZone(name)
    # The files may be newer than what this process has read of them.
    zone = zoneinfo.ZoneInfo.no_cache(name)
    first, last = (int(datetime(year, 1, 1, tzinfo=UTC).timestamp()) for year in _YEARS)
    starts: list[int] = []
    offsets = [_offset(zone, first)]
    for probe in range(first, last, _PROBE_SECONDS):
        until = min(probe + _PROBE_SECONDS, last)
        if _offset(zone, until) != offsets[-1]:
            starts.append(_change(zone, probe, until))
            offsets.append(_offset(zone, until))
    rules = ZoneRules(name, version, *(np.array(s, np.int64) * SECOND for s in (starts, offsets)))
    if (np.diff(rules.offsets) < -MAX_SETBACK).any():
        raise UnknownZone(name)
    return rules


_YEARS = (FIRST_YEAR, LAST_YEAR)


def _offset(zone: zoneinfo.ZoneInfo, seconds: int) -> int:
    offset = datetime.fromtimestamp(seconds, zone).utcoffset()
    assert offset is not None
    return int(offset.total_seconds())


def _change(zone: zoneinfo.ZoneInfo, before: int, after: int) -> int:
    """Return the first second with the offset of `after`; that of `before` is another."""
    later = _offset(zone, after)
    while after - before > 1:
        middle = (before + after) // 2
        if _offset(zone, middle) == later:
            after = middle
        else:
            before = middle
    return after
