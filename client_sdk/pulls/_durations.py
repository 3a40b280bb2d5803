"""Durations as people write them: 90s, 15m, 12h, 30d, 4w."""

from __future__ import annotations

import re
from datetime import timedelta

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_DURATION = re.compile(r"(\d{1,9})\s*([smhdw])", re.ASCII)
_STEPS = (("d", 86_400), ("h", 3_600), ("m", 60))


def parse_duration(text: str) -> timedelta:
    """Raises ValueError for anything else."""
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None:
        raise ValueError(f"{text!r} is not a duration; write 90s, 15m, 12h, 30d or 4w")
    try:
        return timedelta(**{_UNITS[match[2]]: int(match[1])})
    except OverflowError:
        raise ValueError(f"{text!r} is longer than any duration can be") from None


def show_duration(span: timedelta) -> str:
    """The two largest units that matter, as 1h 5m, 15m, 42s, 0.4s."""
    seconds = span.total_seconds()
    if 0 < seconds < 10:
        return f"{seconds:.2g}s"
    left, shown = round(seconds), []
    for unit, size in _STEPS:
        count, left = divmod(left, size)
        if count:
            shown.append(f"{count}{unit}")
    if left or not shown:
        shown.append(f"{left}s")
    return " ".join(shown[:2])
