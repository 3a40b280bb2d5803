"""Times of repeated calls, and their percentiles."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True)
class Times:
    """Seconds, one for each call."""

    seconds: Sequence[float]

    @property
    def p50(self) -> float:
        return float(np.percentile(self.seconds, 50))

    @property
    def p99(self) -> float:
        return float(np.percentile(self.seconds, 99))

    def minus(self, subtrahend: Times) -> Times:
        """Call by call."""
        return Times([a - b for a, b in zip(self.seconds, subtrahend.seconds, strict=True)])


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds, and what the call gave."""
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def least_cpu(calls: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """The least seconds of processor time each call took, in turns; other loads change it least."""
    least = dict.fromkeys(calls, float("inf"))
    for _ in range(rounds):
        for name, call in calls.items():
            start = time.process_time()
            call()
            least[name] = min(least[name], time.process_time() - start)
    return least


def repeated(call: Callable[..., Any], *arguments: Any, **named: Any) -> Callable[[int], Any]:
    """Makes a call for `interleaved` that does one thing in every round."""
    return lambda _: call(*arguments, **named)


def interleaved(calls: Mapping[K, Callable[[int], Any]], rounds: int) -> dict[K, Times]:
    """Each call once a round, so that a noisy neighbour disturbs all of them alike."""
    seconds: dict[K, list[float]] = {name: [] for name in calls}
    for number in range(rounds):
        for name, call in calls.items():
            start = time.perf_counter()
            call(number)
            seconds[name].append(time.perf_counter() - start)
    return {name: Times(samples) for name, samples in seconds.items()}
