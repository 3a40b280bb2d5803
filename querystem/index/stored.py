"""A query SteM as plain arrays, and made again of them.

The arrays may be mapped from a file: nothing here writes into them. `form` says which array is
what; it is plain JSON. A new kind of structure needs a form of its own here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from datastem.arrays import Array, Int64s
from querystem.expressions import Expression, from_json, to_json
from querystem.index.axes import IntervalAxis, MemberAxis, PointAxis
from querystem.index.built.alternatives import (
    Access,
    Alternatives,
    EqualityAccess,
    PatternAccess,
)
from querystem.index.built.boxes import BoxGrid
from querystem.index.built.graph import Axis, BuiltGraph
from querystem.index.built.part import BuiltPart, StoredPredicates
from querystem.index.byte_slices import WORD_BYTES
from querystem.index.hashed.coded_texts import CodedTexts
from querystem.index.hashed.combinations import Combinations, KeyColumn
from querystem.index.hashed.ladders import KeyRange, Ladder, RangeEnd
from querystem.index.hashed.segment import EntryChecks, HashedSegment, Segment
from querystem.index.like.axis import LikeAxis
from querystem.index.like.patterns import Patterns
from querystem.index.probe import Arity
from querystem.index.stem import QueryStem, StemContent

# To be raised whenever the arrays or their meaning change.
INDEX_FORMAT = 5
# What every axis has.
_AXIS_FORM = frozenset({"operand", "nodes"})


class ArrayWriter:
    """The arrays of a query SteM, collected."""

    def __init__(self) -> None:
        self.arrays: list[Array] = []

    def write(self, content: StemContent) -> dict[str, Any]:
        """Return the form of a query SteM, whose arrays are then in `arrays`."""
        return {
            "columns": list(content.columns),
            "parts": [self._part(part) for part in content.parts],
            "hashed": [
                [[to_json(operand) for operand in fixed], [self._segment(s) for s in segments]]
                for fixed, segments in content.hashed.items()
            ],
        }

    def _put(self, array: Array) -> int:
        self.arrays.append(np.ascontiguousarray(array))
        return len(self.arrays) - 1

    def _column(self, column: KeyColumn) -> Any:
        """Return the form of numbers, of texts, or of integers of any size."""
        if isinstance(column, pa.Array):
            # A copy without an offset has exactly its own bytes.
            texts = (
                pa.concat_arrays([column])
                if not column.offset
                else column.take(pa.array(np.arange(len(column))))
            )
            offsets, content = texts.buffers()[1:]
            if offsets is None or content is None:
                return {"texts": texts.to_pylist()}
            edges = np.frombuffer(offsets, np.int32)[: len(texts) + 1]
            octets = np.zeros(edges[-1] + WORD_BYTES, np.uint8)
            # A word after the last text spares a copy when texts are compared.
            octets[:-WORD_BYTES] = np.frombuffer(content, np.uint8)[: edges[-1]]
            return {"edges": self._put(edges), "octets": self._put(octets)}
        if column.dtype == object:
            return {"integers": [int(value) for value in column]}
        return {"array": self._put(column)}

    def _part(self, part: BuiltPart) -> dict[str, Any]:
        roots = part.roots()
        return {
            "ids": self._put(roots.ids),
            "texts": self._column(part.stored.texts),
            "roots": self._put(roots.nodes),
            "graph": self._graph(part.graph),
            "combinations": [
                [[to_json(operand) for operand in family], [list(each) for each in combinations]]
                for family, combinations in part.combinations.items()
            ],
            "accesses": [self._access(access, part.graph) for access in part.accesses],
        }

    def _access(self, access: BoxGrid | Alternatives, graph: BuiltGraph) -> dict[str, Any]:
        if isinstance(access, BoxGrid):
            return self._grid(access)
        alternatives = []
        for each in access.accesses:
            form = self._entries(each.segment)
            if isinstance(each, EqualityAccess):
                form |= self._combinations(each.segment.combinations)
                form["fixed"] = [to_json(operand) for operand in each.fixed]
            else:
                form["axis"] = graph.axes.index(each.axis)
            alternatives.append(form)
        return {"ids": self._put(access.ids), "alternatives": alternatives}

    def _grid(self, grid: BoxGrid) -> dict[str, Any]:
        return {
            "ids": self._put(grid.ids),
            "ranges": self._ranges(grid.ranges),
            "cuts": [self._put(cuts) for cuts in grid.cuts],
            "begins": self._put(grid.begins),
            "boxes": self._put(grid.boxes),
        }

    def _ranges(self, ranges: Mapping[Expression, KeyRange]) -> list[Any]:
        return [
            [to_json(operand), self._put(least), self._put(most)]
            for operand, (least, most) in ranges.items()
        ]

    def _graph(self, graph: BuiltGraph) -> dict[str, Any]:
        return {
            "lines": graph.lines,
            "axes": [self._axis(axis) for axis in graph.axes],
            "first_condition": graph.first_condition,
            "conditions": self._column(graph.conditions),
            "arities": [
                [[arity.level, arity.is_every, arity.early, arity.late], self._put(table)]
                for arity, table in graph.groups()
            ],
        }

    def _axis(self, axis: Axis) -> dict[str, Any]:
        form = {"operand": to_json(axis.operand), "nodes": self._put(axis.nodes)}
        match axis:
            case IntervalAxis():
                columns = {"cuts": axis.cuts, "begins": axis.begins, "ends": axis.ends}
            case PointAxis():
                columns = {"points": axis.points}
            case MemberAxis():
                columns = {"texts": axis.texts}
            case LikeAxis():
                columns = {"patterns": axis.patterns.texts, "is_match": axis.is_match}
                columns |= {"places": axis.places} | axis.patterns.arrays()
        return form | {name: self._column(column) for name, column in columns.items()}

    def _segment(self, segment: HashedSegment) -> dict[str, Any]:
        return self._entries(segment) | self._combinations(segment.combinations)

    def _combinations(self, combinations: Combinations) -> dict[str, Any]:
        return {
            "columns": [self._column(column) for column in combinations.columns],
            "codes": self._put(combinations.codes),
            "seed": combinations.seed,
            "buckets": self._put(combinations.buckets),
        }

    def _entries(self, segment: Segment) -> dict[str, Any]:
        checks = segment.checks
        return {
            "ids": self._put(segment.ids),
            "place": self._put(segment.place),
            "ladders": [self._ladder(ladder) for ladder in segment.ladders],
            "ranges": self._ranges(checks.ranges),
            "likes": [
                [to_json(operand), is_match, self._coded(patterns)]
                for (operand, is_match), patterns in checks.likes.items()
            ],
            "residuals": self._coded(checks.residuals),
        }

    def _coded(self, texts: CodedTexts) -> list[Any]:
        return [self._put(texts.codes), self._column(texts.texts)]

    def _ladder(self, ladder: Ladder) -> dict[str, Any]:
        return {
            "side": None if ladder.side is None else _side_form(ladder.side),
            "slots": self._put(ladder.slots),
            "bounds": self._put(ladder.bounds),
            "begins": self._put(ladder.begins),
            "others": [_side_form(side) for side in ladder.others],
        }


def _side_form(side: RangeEnd) -> list[Any]:
    return [to_json(side.operand), side.is_low]


class ArrayReader:
    """Arrays that an `ArrayWriter` collected."""

    def __init__(self, arrays: Sequence[Array]) -> None:
        self._arrays = arrays

    def read(self, form: dict[str, Any]) -> QueryStem:
        """Return the query SteM of a form."""
        hashed = {
            tuple(from_json(operand) for operand in fixed): [self._segment(s) for s in segments]
            for fixed, segments in form["hashed"]
        }
        parts = [self._part(part) for part in form["parts"]]
        return QueryStem.restored(StemContent(form["columns"], parts, hashed))

    def _column(self, form: dict[str, Any]) -> KeyColumn:
        if "array" in form:
            return self._arrays[form["array"]]
        if "integers" in form:
            return np.array(form["integers"], object)
        if "texts" in form:
            return pa.array(form["texts"], pa.string())
        edges, octets = self._arrays[form["edges"]], self._arrays[form["octets"]]
        buffers = [None, pa.py_buffer(edges), pa.py_buffer(octets)]
        return pa.Array.from_buffers(pa.string(), len(edges) - 1, buffers)

    def _part(self, form: dict[str, Any]) -> BuiltPart:
        stored = StoredPredicates(self._arrays[form["ids"]], self._column(form["texts"]))
        combinations = {
            frozenset(from_json(operand) for operand in family): frozenset(map(tuple, values))
            for family, values in form["combinations"]
        }
        graph = self._graph(form["graph"])
        accesses = [self._access(access, graph) for access in form["accesses"]]
        return BuiltPart(stored, graph, self._arrays[form["roots"]], combinations, accesses)

    def _access(self, form: dict[str, Any], graph: BuiltGraph) -> BoxGrid | Alternatives:
        if "alternatives" not in form:
            return self._grid(form)
        accesses: list[Access] = []
        for each in form["alternatives"]:
            if "axis" in each:
                axis = graph.axes[each["axis"]]
                assert isinstance(axis, LikeAxis)
                accesses.append(PatternAccess(axis, Segment(*self._entries(each))))
            else:
                fixed = tuple(from_json(operand) for operand in each["fixed"])
                accesses.append(EqualityAccess(fixed, self._segment(each)))
        return Alternatives(self._arrays[form["ids"]], accesses)

    def _grid(self, form: dict[str, Any]) -> BoxGrid:
        first, second = form["cuts"]
        return BoxGrid(
            self._arrays[form["ids"]],
            self._ranges(form["ranges"]),
            (self._arrays[first], self._arrays[second]),
            self._arrays[form["begins"]],
            self._arrays[form["boxes"]],
        )

    def _ranges(self, form: list[Any]) -> dict[Expression, KeyRange]:
        return {
            from_json(operand): (self._arrays[least], self._arrays[most])
            for operand, least, most in form
        }

    def _graph(self, form: dict[str, Any]) -> BuiltGraph:
        arities = [(Arity(*arity), self._arrays[table]) for arity, table in form["arities"]]
        return BuiltGraph(
            form["lines"],
            [self._axis(axis) for axis in form["axes"]],
            form["first_condition"],
            self._column(form["conditions"]),
            arities,
        )

    def _axis(self, form: dict[str, Any]) -> Axis:
        operand, nodes = from_json(form["operand"]), self._arrays[form["nodes"]]
        if "texts" in form:
            return MemberAxis(operand, nodes, self._column(form["texts"]))
        if "points" in form:
            return PointAxis(operand, nodes, self._column(form["points"]))
        if "patterns" in form:
            arrays = {name: self._column(form[name]) for name in form.keys() - _AXIS_FORM}
            patterns = Patterns.restored(arrays["patterns"], arrays)
            return LikeAxis(operand, nodes, patterns, arrays["places"], arrays["is_match"])
        columns = [self._column(form[name]) for name in ("cuts", "begins", "ends")]
        return IntervalAxis(operand, nodes, *columns)

    def _segment(self, form: dict[str, Any]) -> HashedSegment:
        combinations = Combinations(
            [self._column(column) for column in form["columns"]],
            self._arrays[form["codes"]],
            form["seed"],
            self._arrays[form["buckets"]],
        )
        ids, place, checks, ladders = self._entries(form)
        return HashedSegment(ids, combinations, place, checks, ladders)

    def _entries(self, form: dict[str, Any]) -> tuple[Int64s, Array, EntryChecks, list[Ladder]]:
        likes = {
            (from_json(operand), is_match): self._coded(coded)
            for operand, is_match, coded in form["likes"]
        }
        checks = EntryChecks(self._ranges(form["ranges"]), likes, self._coded(form["residuals"]))
        ladders = [self._ladder(ladder) for ladder in form["ladders"]]
        return self._arrays[form["ids"]], self._arrays[form["place"]], checks, ladders

    def _coded(self, form: list[Any]) -> CodedTexts:
        return CodedTexts(self._arrays[form[0]], self._column(form[1]))

    def _ladder(self, form: dict[str, Any]) -> Ladder:
        side = form["side"]
        return Ladder(
            None if side is None else RangeEnd(from_json(side[0]), side[1]),
            self._arrays[form["slots"]],
            self._arrays[form["bounds"]],
            self._arrays[form["begins"]],
            tuple(RangeEnd(from_json(operand), is_low) for operand, is_low in form["others"]),
        )
