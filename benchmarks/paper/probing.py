"""A new join over two tables probes the second one: figure 11, with and without composite tuples.

The rows of r that the query's own factor left have become hybrid structs: each asks for the rows of
s with `value RELOP s.b`, and all of them for those with one more factor of s.b. Separate, every one
probes an index of s.b by itself, with the more selective of its two factors first. Composite, the
shared factor is applied once, and the product's join finds the partners of all values together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from benchmarks.paper.nomat import ColumnIndex
from benchmarks.paper.workload import TOP, Array, Factor
from benchmarks.timing import least_cpu
from datastem.types import BIGINT, BOOLEAN
from querystem.expressions import Call, ColumnRef, Op
from querystem.join import join

WORKLOADS = ("Eq/Ineq", "Ineq/Eq", "Ineq/Ineq")
WAYS = ("composite", "separate")


@dataclass(frozen=True)
class Probes:
    """Milliseconds to find the pairs of `size` hybrid structs and as many rows, by way."""

    size: int
    pairs: int
    take_ms: dict[str, float]

    @property
    def gain(self) -> float:
        """How many times longer separate takes."""
        return self.take_ms["separate"] / self.take_ms["composite"]


def probes(workload: str, sizes: Sequence[int], rounds: int) -> list[Probes]:
    """For each size. `workload` names the shared factor, then the one that joins. Raises
    AssertionError if the ways find different pairs."""
    return [_probe(_Step(workload, size), rounds) for size in sizes]


def _probe(step: _Step, rounds: int) -> Probes:
    first, second = np.lexsort(step.composite()), np.lexsort(step.separate())
    for ours, separate in zip(step.composite(), step.separate(), strict=True):
        assert np.array_equal(ours[first], separate[second])
    ways: dict[str, Callable[[], object]] = {
        "composite": step.composite,
        "separate": step.separate,
    }
    take_ms = {name: seconds * 1e3 for name, seconds in least_cpu(ways, rounds).items()}
    return Probes(step.size, len(first), take_ms)


class _Step:
    """Step 5 of the paper's figure 4, for one query."""

    def __init__(self, workload: str, size: int) -> None:
        shared, relop = workload.split("/")
        random = np.random.default_rng(11)
        self.size = size
        self._values = random.integers(0, TOP + 1, size)
        self._column = random.integers(0, TOP + 1, size)
        self._index = ColumnIndex(self._column)
        self._op = Op.EQ if relop == "Eq" else Op.LT
        middle = (TOP + 1) // 2
        self._shared = Factor("b", middle, middle + 1 if shared == "Eq" else np.inf, "")

    def composite(self) -> tuple[Array, Array]:
        """The places of the structs and of the rows, pair by pair."""
        first, last = self._index.span(self._shared)
        rows = self._index.places[first:last]
        sides = ColumnRef("0.a", BIGINT), ColumnRef("1.b", BIGINT)
        items = [
            pa.record_batch({"0.a": self._values}),
            pa.record_batch({"1.b": self._column[rows]}),
        ]
        places = join(items, Call(self._op, sides, BOOLEAN), 1 << 40).places
        return places[0], rows[places[1]]

    def separate(self) -> tuple[Array, Array]:
        """The places of the structs and of the rows, pair by pair."""
        places = list(self._one_by_one())
        counts = [len(chunk) for chunk in places]
        return np.repeat(np.arange(len(places)), counts), np.concatenate(places)

    def _one_by_one(self) -> Iterator[Array]:
        for value in self._values.tolist():
            end = value + 1 if self._op is Op.EQ else np.inf
            factor = Factor("b", value + (self._op is Op.LT), end, "")
            spans = [
                (self._index.span(candidate), candidate) for candidate in (self._shared, factor)
            ]
            ((first, last), _), (_, second) = sorted(
                spans, key=lambda candidate: candidate[0][1] - candidate[0][0]
            )
            places = self._index.places[first:last]
            yield places[second.holds(self._column[places])]
