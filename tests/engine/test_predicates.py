"""A worker's predicates, brought up to date by difference, are those of the table."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa

from datastem.types import BIGINT, BOOLEAN
from psoup.engine.matching.predicates import LivePredicates, PredicateTexts
from psoup.store import DeltaFolder
from psoup.store.delta import TableDefinition
from psoup.store.delta.files import write_data_file
from psoup.store.layout import PREDICATES
from psoup.store.tables import read_newest
from querystem.expressions import Call, ColumnRef, Literal, Op, to_json

ROWS = pa.record_batch({"a": pa.array(np.arange(300)), "b": pa.array(np.arange(300) % 7)})


def key(id_: int) -> str:
    parts = [
        Call(op, (ColumnRef(name, BIGINT), Literal(value, BIGINT)), BOOLEAN)
        for op, name, value in ((Op.EQ, "a", id_ % 250), (Op.LT, "b", id_ % 5))
    ]
    return json.dumps(to_json(Call(Op.AND, tuple(parts), BOOLEAN)), separators=(",", ":"))


def row(id_: int, position: int, ended: bool = False) -> dict[str, object]:
    if ended:
        return {"predicate_id": id_, "position": position, "ended": True}
    stream = {"tenant": "main", "stream_id": id_ % 2, "key": key(id_), "registrations": 1}
    return {"predicate_id": id_, "position": position, "ended": False, **stream}


def probe_matches(predicates: LivePredicates, stream: int, *ranges: tuple[int, int]) -> set[int]:
    stem = predicates.stem(stream, tuple(ranges)) if ranges else predicates.stem(stream)
    stem.index._check()
    return {id_ for id_, _ in stem.index.probe(ROWS)}


def test_oracle_table_after_each_commit(tmp_path: Path) -> None:
    random, folder = np.random.default_rng(3), DeltaFolder(tmp_path / "predicates")
    folder.create(TableDefinition(PREDICATES))
    predicates, live, next_id = LivePredicates(folder), set[int](), 0
    matching = {n for n in range(5000) if n % 250 % 7 < n % 5}
    for version in range(1, 25):
        added = list(range(next_id, next_id + int(random.integers(1, 200))))
        next_id = added[-1] + 1
        again = random.choice([*live, *added], 3).tolist()
        ended = np.unique(random.choice([*live, *added], 20)).tolist()
        rows = [row(id_, version * 1000 + place) for place, id_ in enumerate([*added, *again])]
        rows += [row(id_, version * 1000 + len(rows) + 50, ended=True) for id_ in ended]
        removed = []
        if version % 8 == 0:
            removed = list(folder.snapshot().files.values())
            newest = read_newest(folder, folder.snapshot(), PREDICATES)
            rows = [*newest.to_pylist(), *rows]
        table = pa.Table.from_pylist(rows, PREDICATES)
        written = write_data_file(folder.root, table, bounds=["predicate_id"])
        folder.commit(version, [written], removed, operation="TEST")
        live = (live | set(added)) - set(ended)
        if version % 3 == 0:
            continue
        predicates.advance(version)
        for stream in (0, 1):
            of_stream = {id_ for id_ in live if id_ % 2 == stream}
            assert set(predicates.live(stream).tolist()) == of_stream
            assert probe_matches(predicates, stream) == of_stream & matching
            assert predicates.stem(stream).columns == {"a", "b"}
            in_ranges = {id_ for id_ in of_stream & matching if 100 <= id_ < 300 or id_ >= 900}
            assert probe_matches(predicates, stream, (100, 300), (900, sys.maxsize)) == in_ranges


def test_parts_are_merged_and_keep_their_texts() -> None:
    live, model, random = PredicateTexts(), dict[int, str](), np.random.default_rng(1)
    for step in range(60):
        ids = np.unique(random.integers(step * 100, step * 100 + 100, 9))
        live.insert(ids, pa.array([str(id_) for id_ in ids.tolist()]))
        model |= {id_: str(id_) for id_ in ids.tolist()}
        removed = np.array(random.choice(sorted(model), 3, replace=False))
        live.remove(removed)
        for id_ in removed.tolist():
            del model[id_]
        live._check()
        parts = [dict(zip(a.tolist(), t.to_pylist(), strict=True)) for a, t in live.parts()]
        assert {id_: text for part in parts for id_, text in part.items()} == model
        assert live.contains(np.array(sorted(model))).all()
        assert not live.contains(np.append(removed, -5)).any()
    assert len(parts) < 9
