"""What Explain says of the engine's index: the structure that finds a leg's predicate.

Servers have no such index, so one is made of the stream's predicates, by the code of the engine's
workers. Reading them in columns takes some microseconds for each.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from psoup.answers.planning.plan import LegPlan
from psoup.v1 import psoup_pb2 as pb
from querystem.expressions import predicate_key
from querystem.index.structures import (
    AnyOf,
    Bitmaps,
    ByItself,
    EveryBox,
    Grid,
    HashTable,
    PatternTable,
    Structure,
)
from querystem.labels import labelled
from querystem.language import expression_text
from querystem.pace import spending
from querystem.structures import structure_of, structure_text

# The most predicates of a stream to build an index from, and the bytes of their texts.
MAX_INDEXED, MAX_INDEXED_BYTES = 65_536, 32 << 20
# Units (`querystem.pace`) of a predicate that is read in columns and built.
_BUILD_UNITS = 5_000

_METHODS: dict[type[Structure], pb.IndexMethod] = {
    HashTable: pb.INDEX_METHOD_HASH_TABLE,
    PatternTable: pb.INDEX_METHOD_PATTERN_TABLE,
    AnyOf: pb.INDEX_METHOD_ANY_OF,
    Grid: pb.INDEX_METHOD_GRID,
    EveryBox: pb.INDEX_METHOD_EVERY_BOX,
    Bitmaps: pb.INDEX_METHOD_BITMAPS,
    ByItself: pb.INDEX_METHOD_BY_ITSELF,
}


def index_message(
    leg: LegPlan, others: pa.Table, excluded: Sequence[int]
) -> pb.IndexStructure | None:
    """Return the structure that a worker picks for a leg's predicate beside others, without the
    excluded ones. None if the predicate is excluded, or a text can't be read."""
    if leg.predicate_id in excluded:
        return None
    spending()(_BUILD_UNITS * (1 + len(others)))
    ids = np.append(others.column("predicate_id").to_numpy(), leg.predicate_id)
    texts = others.column("key").cast(pa.string()).chunks
    texts = pa.concat_arrays([*texts, pa.array([predicate_key(leg.leg.where)])])
    order = np.argsort(ids)
    order = order[~np.isin(ids[order], excluded)]
    try:
        structure = structure_of(leg.predicate_id, ids[order], texts.take(pa.array(order)))
    except (LookupError, TypeError, ValueError):
        # An unreadable predicate of another query, which the engine has not met yet.
        return None
    return pb.IndexStructure(
        method=_METHODS[type(structure)],
        operands=[expression_text(labelled(operand, leg.schema)) for operand in structure.operands],
        predicate_count=structure.count,
        text=structure_text(structure, leg.schema),
    )
