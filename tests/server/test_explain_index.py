"""Explain names the structure of the engine's index that finds a predicate."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa

from datastem.schema import StreamSchema
from psoup.access.principal import Principal
from psoup.engine.matching.index_cache import IndexCache
from psoup.engine.matching.predicates import LivePredicates
from psoup.lookup import find_registration
from psoup.server.calls.explain import explain
from psoup.server.calls.register import register_many
from psoup.server.core import Core
from psoup.store.state.quarantine import PREDICATE, QuarantineEntry
from psoup.v1 import psoup_pb2 as pb
from psoup.write.streams import Define
from querystem.index import QueryStem
from querystem.language import CreateStream, parse_statement
from querystem.structures import structure_text
from tests.server.test_epochs import running
from tests.support.server.callers import acting_as, new_call
from tests.support.server.epochs import HandMadeEngine
from tests.support.server.process import ipc
from tests.support.structures import found_by

_SQL = "CREATE STREAM s (a BIGINT, b DOUBLE, t TEXT, at TIMESTAMP) ORDERED BY at"
# Conditions, how many queries have each, and what finds them.
_FAMILIES = {
    "a = :n AND b < :x": (200, pb.INDEX_METHOD_HASH_TABLE),
    "a > :n AND a < :m AND b > :x AND b < :y": (300, pb.INDEX_METHOD_GRID),
    "t LIKE :p": (70, pb.INDEX_METHOD_PATTERN_TABLE),
    "t = :p OR a = :n": (64, pb.INDEX_METHOD_ANY_OF),
    "b < :x": (5, pb.INDEX_METHOD_BITMAPS),
}


async def _define(core: Core) -> None:
    statement = parse_statement(_SQL)
    assert isinstance(statement, CreateStream)
    await core.appender.submit(Define("main", "main", statement.schema))


async def _register(core: Core, where: str, count: int) -> list[bytes]:
    n = np.arange(count)
    columns = {"n": n, "m": n + 3, "x": n * 1.0, "y": n + 3.0, "p": [f"{k:03}%" for k in n]}
    used = {name: values for name, values in columns.items() if f":{name}" in where}
    text = f"SELECT a FROM s WHERE {where} UNBOUNDED"
    request = pb.RegisterManyRequest(sql=text, arrow=ipc(pa.table(used)))
    return list((await register_many(core, new_call(), request)).handles)


def _worker_index(core: Core) -> QueryStem:
    """Return the index that a worker of the engine builds."""
    table = core.store.table("predicates")
    worker = LivePredicates(table, IndexCache(table.root, table.root / "no cache"))
    worker.advance(table.latest_version())
    (stream_id,) = worker.streams()
    return worker.stem(stream_id).index


async def test_the_structure_is_the_one_by_which_a_worker_finds_matches(tmp_path: Path) -> None:
    async with running(tmp_path / "store") as core:
        await _define(core)
        engine = HandMadeEngine(core.store)
        handles = {
            where: await _register(core, where, count) for where, (count, _) in _FAMILIES.items()
        }
        engine.step()
        await core.follower.refresh()
        index = _worker_index(core)
        columns = [7, 20, None], [6.5, 21.5, 1.5], ["007x", "020%", None]
        rows = pa.record_batch([pa.array(column) for column in columns], list("abt"))
        kinds = found_by(index, rows)
        matched: Counter[str] = Counter()
        for where, (count, method) in _FAMILIES.items():
            for number in (0, 6, 7, 20, count - 1):
                handle = handles[where][min(number, count - 1)]
                registration = find_registration(core.follower.state, "main", handle)
                predicate_id = registration.predicate_id
                explanation = await explain(core, new_call(), pb.ExplainRequest(handle=handle))
                message = explanation.legs[0].index
                structure = index.structure(predicate_id)
                assert (message.method, message.predicate_count) == (method, count)
                assert message.text == structure_text(structure, StreamSchema("s", ()))
                if predicate_id in kinds:
                    assert kinds[predicate_id] is type(structure)
                    matched[where] += 1
        assert matched.keys() == _FAMILIES.keys()


async def test_a_text_is_explained_as_if_it_was_registered(tmp_path: Path) -> None:
    async with running(tmp_path / "store") as core:
        await _define(core)

        async def index_of(where: str) -> pb.IndexStructure:
            request = pb.ExplainRequest(sql=f"SELECT a FROM s {where} UNBOUNDED")
            return (await explain(core, new_call(), request)).legs[0].index

        assert (await index_of("WHERE a = 3")).text == "evaluated by itself"
        assert not (await index_of("")).text
        await _register(core, "a = :n AND b < :x", 200)
        index = await index_of("WHERE a = 3 AND b > 7.5")
        assert index.text == "a hash table of a, then sorted bounds of b"
        assert (list(index.operands), index.predicate_count) == (["a"], 201)
        with acting_as(Principal("main", "reader", roles=frozenset({"reader"}))):
            assert not (await index_of("WHERE a = 3 AND b > 7.5")).text


async def test_predicates_in_quarantine_are_left_out(tmp_path: Path) -> None:
    async with running(tmp_path / "store") as core:
        await _define(core)
        engine = HandMadeEngine(core.store)
        handles = await _register(core, "a = :n AND b < :x", 130)
        engine.step()
        registrations = [find_registration(core.follower.state, "main", h) for h in handles]
        ids = [registration.predicate_id for registration in registrations]
        stream_id = registrations[0].stream_id
        engine.set_aside(*[QuarantineEntry(PREDICATE, id_, stream_id, "bad") for id_ in ids[:5]])
        await core.follower.refresh()
        (bad, good) = [
            await explain(core, new_call(), pb.ExplainRequest(handle=handle))
            for handle in (handles[0], handles[-1])
        ]
        assert bad.legs[0].quarantined and not bad.legs[0].HasField("index")
        # Without those five, the family has too few values for a hash table.
        assert good.legs[0].index.method == pb.INDEX_METHOD_BITMAPS
        assert good.legs[0].index.predicate_count == 125
