"""How many syncs could share a difference that another one has computed.

Clients come back at different instants, each after its own time away, while rows are published. A
difference could be shared by syncs of the same query and rows, from the same mark to the same mark.
The marks are those of the server's own jobs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from benchmarks import workload
from benchmarks.report import Report
from psoup.access.principal import ANYONE
from psoup.answers.difference.job import make_job
from psoup.server.call import Call
from psoup.server.calls import sync as sync_calls
from psoup.server.core import Core
from psoup.server.services import HANDLERS
from psoup.server.settings import Settings
from psoup.server.wire.arrow import serialize
from psoup.store import Store
from psoup.v1 import psoup_pb2 as pb
from tests.support.generators import START
from tests.support.server.process import ipc

CLIENTS = 1_000
# A publish each second; clients are away for ten minutes on average.
SECONDS, AWAY_SECONDS, BATCH_ROWS = 1_200, 600, 10
# How many different queries the clients have.
QUERIES = {"each its own query": CLIENTS, "100 queries": 100, "one query": 1}


def measure(report: Report, folder: Path, quick: bool) -> None:
    seconds = SECONDS // 10 if quick else SECONDS
    for title, queries in QUERIES.items():
        hits, syncs = asyncio.run(_share(folder / str(queries), queries, seconds))
        name = f"syncs whose difference was computed before, {CLIENTS:,} clients, {title}"
        report.add(name, 100 * hits / syncs, "%")


async def _share(folder: Path, queries: int, seconds: int) -> tuple[int, int]:
    """Return how many syncs had the key of an earlier one, and how many there were that sent
    something."""
    folder.mkdir(parents=True)
    store = Store.open(folder / "store", create=True, sync=False)
    core = Core(store, Settings(folder / "store"))
    await core.start()
    await _call(core, "Define", pb.DefineRequest(sql=workload.STREAM))
    handles = []
    for number in range(CLIENTS):
        least = number % queries / CLIENTS
        sql = f"SELECT * FROM traffic WHERE speed > {least} RANGE 10 MINUTES"
        handles.append((await _call(core, "Register", pb.RegisterRequest(sql=sql)))[0].handle)
    chance = np.random.default_rng(0)
    due = chance.exponential(AWAY_SECONDS, CLIENTS)
    tokens, earlier_keys = [b""] * CLIENTS, set[Hashable]()
    hits, syncs = 0, 0
    keys: list[Hashable] = []
    with mock.patch.object(sync_calls, "make_job", _noting(keys)):
        for second in range(seconds):
            rows = workload.rows(BATCH_ROWS, START + (second + 1) * workload.EVERY * 1_000)
            publish = pb.PublishRequest(stream="traffic", arrow=ipc(rows))
            await _call(core, "Publish", publish)
            for client in np.flatnonzero(due < second).tolist():
                item = pb.SyncItem(handle=handles[client], token=tokens[client])
                parts = await _call(core, "Sync", pb.SyncRequest(items=[item]))
                # First copies are whole answers, not differences.
                if tokens[client]:
                    hits, syncs = hits + (keys[-1] in earlier_keys), syncs + 1
                earlier_keys.add(keys[-1])
                tokens[client] = pb.SyncPart.FromString(serialize(parts[-1])).end.token
                due[client] = second + chance.exponential(AWAY_SECONDS)
    await core.stop()
    return hits, syncs


def _noting(keys: list[Hashable]) -> Callable[..., Any]:
    """Return `make_job`, which also notes what a difference could be kept by."""

    def noting(question: Any, plan: Any, *arguments: Any) -> Any:
        job = make_job(question, plan, *arguments)
        legs = tuple((leg.stream_id, leg.subject) for leg in plan.legs)
        marks = job.claim.copy, job.target
        keys.append((legs, plan.query, question.base_rows, question.changes, *marks))
        return job

    return noting


async def _call(core: Core, rpc: str, request: Any) -> list[Any]:
    outcome = HANDLERS[rpc](core, Call(ANYONE), request)
    if hasattr(outcome, "__aiter__"):
        return [message async for message in outcome]
    return [await outcome]
