"""What really found the matches of a probe: the structures of a query SteM, watched."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

import pyarrow as pa
import pytest

from querystem.index import QueryStem, tail
from querystem.index.built.alternatives import Alternatives, EqualityAccess, PatternAccess
from querystem.index.built.boxes import BoxGrid
from querystem.index.built.part import BuiltPart
from querystem.index.hashed.group import HashedGroup
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
from querystem.index.tail import GraphTail

Kind = type[Structure]


def found_by(stem: QueryStem, rows: pa.RecordBatch) -> dict[int, Kind]:
    """Return, for each predicate that has matches among the rows, the kind of structure whose probe
    returned them."""
    kinds: dict[int, Kind] = {}

    def watch(owner: type, kind_of: Callable[..., Kind]) -> None:
        original = owner.probe  # type: ignore[attr-defined]

        @wraps(original)
        def probe(self: Any, *args: Any) -> Any:
            matches = original(self, *args)
            if matches is None:
                return None
            parts = [matches] if hasattr(matches, "ids") else list(matches)
            for part in parts:
                kinds.update(dict.fromkeys(part.ids.tolist(), kind_of(self, *args)))
            return parts[0] if hasattr(matches, "ids") else parts

        patch.setattr(owner, "probe", probe)

    with pytest.MonkeyPatch.context() as patch:
        watch(HashedGroup, lambda *_: HashTable)
        watch(BoxGrid, lambda grid, *_: _cells(grid))
        watch(Alternatives, lambda access, *_: _kind_of(access.accesses))
        watch(BuiltPart, lambda *_: Bitmaps)
        watch(GraphTail, lambda _, __, roots: ByItself if len(roots) <= _FEW else Bitmaps)
        stem.probe(rows)
    return kinds


_FEW = tail._FEW_FORMULAS


def _cells(grid: BoxGrid) -> Kind:
    return Grid if len(grid.begins) > 2 else EveryBox


def _kind_of(accesses: Iterable[EqualityAccess | PatternAccess]) -> Kind:
    kinds = [PatternTable if isinstance(each, PatternAccess) else HashTable for each in accesses]
    return kinds[0] if len(kinds) == 1 else AnyOf
