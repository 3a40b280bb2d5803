"""Calls by method, from the metrics of servers: how many a second, and how long they take."""

from __future__ import annotations

import re
import urllib.error
import urllib.request
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from psoup.cli.problems import Problem

_TIMEOUT_SECONDS = 5.0
_MAX_PAGE_BYTES = 16 << 20
_BUCKET = re.compile(r"^psoup_call_duration_seconds_bucket\{([^}]*)\} (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')

# How many calls of a method took at most so many seconds, since the server started.
Buckets = Mapping[tuple[str, float], float]


@dataclass(frozen=True, slots=True)
class CallRate:
    """Calls of a method that ended since the last look: how many a second, and how many seconds
    half of them and 99 % of them took at most. None if there were none."""

    method: str
    calls_per_second: float
    p50_seconds: float | None
    p99_seconds: float | None


def read_buckets(addresses: Sequence[str], token_file: Path | None) -> Buckets:
    """Return the buckets of several servers together. Raise Problem for one that can't be read."""
    buckets: defaultdict[tuple[str, float], float] = defaultdict(float)
    for address in addresses:
        for labels, count in _BUCKET.findall(_fetch(address, token_file)):
            names = dict(_LABEL.findall(labels))
            buckets[names["method"], float(names["le"])] += float(count)
    return buckets


def _fetch(address: str, token_file: Path | None) -> str:
    url = f"{address if '://' in address else f'http://{address}'}/metrics"
    try:
        headers = {}
        if token_file is not None:
            headers["Authorization"] = f"Bearer {token_file.read_text().strip()}"
        request = urllib.request.Request(url, headers=headers)
        with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as response:
            return str(response.read(_MAX_PAGE_BYTES).decode(errors="replace"))
    except urllib.error.HTTPError as error:
        error.close()
        hint = "; give --metrics-token-file" if error.code in (401, 403) else ""
        raise Problem(f"the metrics at {address} can't be read: {error.code}{hint}") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise Problem(f"the metrics at {address} can't be read: {reason}") from None


def call_rates(before: Buckets, after: Buckets, seconds: float) -> tuple[CallRate, ...]:
    """Return the calls between two looks by method, the most frequent first."""
    # A server that was started again counts from 0.
    grown = {key: max(0.0, count - before.get(key, 0.0)) for key, count in after.items()}
    rates = []
    for method in {method for method, _ in grown}:
        counts = sorted((limit, count) for (name, limit), count in grown.items() if name == method)
        if total := counts[-1][1]:
            p50, p99 = (_quantile(counts, share * total) for share in (0.5, 0.99))
            rates.append(CallRate(method, total / seconds, p50, p99))
    return tuple(sorted(rates, key=lambda rate: (-rate.calls_per_second, rate.method)))


def _quantile(counts: Iterable[tuple[float, float]], rank: float) -> float:
    """Return the seconds that a number of the calls took at most, interpolated in their bucket.
    `counts` are cumulative, by rising limits, the last of which is infinite."""
    low, below = 0.0, 0.0
    for limit, count in counts:
        if count >= rank and limit != float("inf"):
            return low + (limit - low) * (rank - below) / (count - below)
        if limit != float("inf"):
            low, below = limit, count
    return low
