"""The structure that finds a predicate in the query SteM, in words."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from datastem.arrays import Int64s
from datastem.schema import StreamSchema
from querystem.expressions import Expression
from querystem.index import QueryStem
from querystem.index.like.anchors import AnchorPlace
from querystem.index.structures import (
    AnyOf,
    Bitmaps,
    ByItself,
    EveryBox,
    Grid,
    HashTable,
    LookUp,
    PatternTable,
    Runs,
    Structure,
)
from querystem.labels import labelled
from querystem.language.normal_form.texts import expression_text

_PIECES = {
    AnchorPlace.BEGIN: "prefixes of patterns",
    AnchorPlace.END: "suffixes of patterns",
    AnchorPlace.ANYWHERE: "pieces of patterns",
}


def structure_of(predicate_id: int, ids: Int64s, texts: pa.Array) -> Structure:
    """Return the structure that a worker finds a predicate by, if it builds its index from these
    predicates, which ascend. Raise whatever a bad text raises."""
    stem = QueryStem()
    stem.insert_texts(ids, texts)
    return stem.structure(predicate_id)


def structure_text(structure: Structure, schema: StreamSchema) -> str:
    """Return a structure in plain words, with the labels of the columns of a stream."""
    match structure:
        case HashTable() | PatternTable():
            return _look_up(structure, schema)
        case AnyOf(_, parts):
            return "one of: " + "; or ".join(_look_up(part, schema) for part in parts)
        case Grid(_, operands, (columns, lines)):
            size = f"{columns:,} × {lines:,} cells"
            return f"a grid of {size} over {_names(operands, schema)}, cut at quantiles; or bitmaps"
        case EveryBox():
            return "a few rows are compared with every box; more by bitmaps"
        case Bitmaps():
            return "bitmaps, one for each distinct condition, then combined"
        case ByItself():
            return "evaluated by itself"


def _look_up(structure: LookUp, schema: StreamSchema) -> str:
    names, runs = _names(structure.operands, schema), _runs(structure.runs, schema)
    if isinstance(structure, PatternTable):
        return f"a table of {_PIECES[structure.place]} of {names}{runs}"
    return f"a hash table of {names}{runs}"


def _runs(runs: Runs, schema: StreamSchema) -> str:
    text = ""
    if runs.sorted_by is not None:
        text = f", then sorted bounds of {expression_text(labelled(runs.sorted_by, schema))}"
    return text + (", then a check of the rest" if runs.is_checked else "")


def _names(operands: Sequence[Expression], schema: StreamSchema) -> str:
    return ", ".join(expression_text(labelled(operand, schema)) for operand in operands)
