"""All factors on one operand, answered together for a slice of a batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from datastem.types import Kind, Type
from querystem.index.bitmaps import Words, accumulate, pack, scatter, words_for
from querystem.index.formula import Interval, Member
from querystem.index.rows import Rows
from querystem.kernel.cuts import END, START
from querystem.kernel.vector import Mask, Vector

# Up to here a comparison for each constant is faster than finding each row's place among them.
FEW_CUTS = 24
FEW_TEXTS = FEW_CUTS // 4
_INT64_DIGITS = 18


class IntervalAxis:
    """Intervals of one operand's values. Thread safety: the index's."""

    def __init__(self, type_: Type) -> None:
        self._bounds = Rows(2, _dtype(type_))
        self._edges = Rows(3)
        self._plan: _Plan | None = None

    def __len__(self) -> int:
        return len(self._edges)

    def put(self, node: int, factor: Interval) -> None:
        cuts = factor.begin, factor.end
        self._edges.put(node, node, *[_edge(cut) for cut in cuts])
        self._bounds.put(node, *[0 if _edge(cut) else cut for cut in cuts])
        self._plan = None

    def drop(self, node: int) -> None:
        self._edges.drop(node)
        self._bounds.drop(node)
        self._plan = None

    def fill(self, operand: Vector, rows: slice, into: Words) -> None:
        """Sets line `node` of `into` for every interval here."""
        plan = self._plan or _plan(self._edges.table, self._bounds.table)
        self._plan = plan
        below = _below(*_slice(operand, rows), plan.cuts)
        into[plan.nodes] = below[plan.ends] ^ below[plan.begins]


@dataclass(frozen=True, slots=True)
class _Plan:
    """The distinct cuts in order, and each node's interval as two lines of `_below`."""

    cuts: npt.NDArray[Any]
    nodes: npt.NDArray[np.int64]
    begins: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]


def _plan(edges: npt.NDArray[np.int64], bounds: npt.NDArray[Any]) -> _Plan:
    cuts = np.unique(bounds[edges[:, 1:] == 0])
    lines = np.searchsorted(cuts, bounds) + 1
    lines[edges[:, 1:] < 0] = 0
    lines[edges[:, 1:] > 0] = len(cuts) + 1
    begins, ends = lines[:, 0], lines[:, 1]
    return _Plan(cuts, edges[:, 0].copy(), begins, np.maximum(begins, ends))


def _edge(cut: Any) -> int:
    return -1 if cut is START else int(cut is END)


def _dtype(type_: Type) -> npt.DTypeLike:
    if type_.kind is Kind.DOUBLE:
        return np.float64
    return object if type_.precision > _INT64_DIGITS else np.int64


def _below(values: npt.NDArray[Any], valid: Mask | None, cuts: npt.NDArray[Any]) -> Words:
    """Line 0 is empty, line i + 1 the rows below cut i, the last line every valid row."""
    if len(cuts) <= FEW_CUTS:
        return _below_few(values, valid, cuts)
    last = len(cuts) + 1
    lines = np.searchsorted(cuts, values, side="right") + 1
    if valid is not None:
        lines[~valid] = last + 1
    return accumulate(scatter(lines, last + 2)[: last + 1])


def _below_few(values: npt.NDArray[Any], valid: Mask | None, cuts: npt.NDArray[Any]) -> Words:
    matrix = np.zeros((len(cuts) + 2, words_for(len(values))), np.uint64)
    everywhere = np.ones(len(values), np.bool_) if valid is None else valid
    for line, cut in enumerate(cuts, 1):
        below = ~np.isnan(values) if cut != cut else values < cut
        matrix[line] = pack(np.asarray(below if valid is None else below & valid, np.bool_))
    matrix[-1] = pack(everywhere)
    return matrix


class MemberAxis:
    """Texts one operand may equal. Thread safety: the index's."""

    def __init__(self) -> None:
        self._texts: dict[int, str] = {}
        self._plan: tuple[npt.NDArray[np.int64], pa.Array] | None = None

    def __len__(self) -> int:
        return len(self._texts)

    def put(self, node: int, factor: Member) -> None:
        self._texts[node] = factor.value
        self._plan = None

    def drop(self, node: int) -> None:
        del self._texts[node]
        self._plan = None

    def fill(self, operand: Vector, rows: slice, into: Words) -> None:
        """Sets line `node` of `into` for every text here."""
        if self._plan is None:
            nodes = np.fromiter(self._texts, np.int64, len(self._texts))
            self._plan = nodes, pa.array(self._texts.values(), pa.string())
        nodes, texts = self._plan
        length = rows.stop - rows.start
        column = operand.values if len(operand) == 1 else operand.values[rows]
        if len(nodes) <= FEW_TEXTS or len(operand) == 1:
            for node, text in zip(nodes, texts, strict=True):
                equal = pc.equal(column, text).fill_null(False).to_numpy(zero_copy_only=False)
                into[node] = pack(np.broadcast_to(equal, length))
            return
        places = pc.index_in(column, value_set=texts).fill_null(len(nodes))
        into[nodes] = scatter(places.to_numpy(zero_copy_only=False), len(nodes) + 1)[:-1]


def _slice(operand: Vector, rows: slice) -> tuple[npt.NDArray[Any], Mask | None]:
    length = rows.stop - rows.start
    values = np.broadcast_to(operand.values, length) if len(operand) == 1 else operand.values[rows]
    valid = operand.valid
    if valid is not None:
        valid = np.broadcast_to(valid, length) if len(valid) == 1 else valid[rows]
    return values, valid
