"""Stores for the cases: rows and predicates in a log, without a server; the engine's own steps."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import SparkSession

from datastem.schema import Column, StreamSchema
from datastem.types import BIGINT, BOOLEAN
from psoup.engine.matching.backfill import Backfill
from psoup.engine.repair.recover import open_ledger
from psoup.engine.settings import EngineSettings
from psoup.engine.steps.grid import StepLimits
from psoup.engine.steps.step import StepMemory, next_stretch, take_step
from psoup.store import Store
from psoup.store.log.events import MANY, RegisterMany
from querystem.expressions import Call, ColumnRef, Expression, Literal, Op, predicate_key
from querystem.language.normal_form.normal import normal
from querystem.legs import Leg
from querystem.query import Query
from querystem.query_json import query_to_json
from results.window import UNBOUNDED
from tests.support.engine.author import Author

POINTS = StreamSchema("points", tuple(Column(name, BIGINT) for name in "xyz"))
DOMAIN = 1_000_000
BATCH_ROWS = 10_000
# Rows that a new worker probes first.
FIRST_ROWS = 1000
_HANDLE_BYTES = 16


class BenchmarkStore:
    """A store with one stream of random points."""

    def __init__(self, root: Path) -> None:
        self.store = Store.open(root, create=True, sync=False)
        self.author = Author(self.store)
        self.stream = self.author.create(POINTS)
        self._handles = 0

    def publish(self, rows: int, batch: int = BATCH_ROWS) -> None:
        rng = np.random.default_rng(rows)
        for begin in range(0, rows, batch):
            count = min(batch, rows - begin)
            columns = [pa.array(rng.integers(0, DOMAIN, count)) for _ in POINTS.columns]
            self.author.publish(
                self.stream, pa.RecordBatch.from_arrays(columns, schema=POINTS.arrow)
            )

    def register_intervals(self, count: int, seed: int = 0) -> None:
        """Two intervals of a hundredth of the values: one row in 10,000 matches each predicate."""
        self._register(*intervals(count, seed))

    def register_equalities(self, count: int, seed: int = 0) -> None:
        """`z = ? AND x > ?`, which is hashed."""
        rng = np.random.default_rng(seed)
        columns = [rng.choice(DOMAIN, count, replace=False), rng.integers(0, DOMAIN, count)]
        self._register(template(("z", Op.EQ), ("x", Op.GT)), columns)

    def _register(self, where: Expression, columns: list[npt.NDArray[np.int64]]) -> None:
        keys = texts_of(where, columns)
        first, state = self._handles, self.author.state
        self._handles += len(keys)
        handles = [n.to_bytes(_HANDLE_BYTES) for n in range(first, self._handles)]
        ids = np.arange(len(keys)) + state.next_predicate_id
        empty = [""] * len(keys), ["{}"] * len(keys)
        rows = pa.table([handles, empty[0], ids, keys, empty[1]], schema=MANY)
        query = json.dumps(query_to_json(Query(Leg(POINTS.name, where, UNBOUNDED), ())))
        self.author.append(RegisterMany(self.stream, "", query, 0, rows))


def intervals(count: int, seed: int = 0) -> tuple[Expression, list[npt.NDArray[np.int64]]]:
    """Return a template of two intervals of a hundredth of the values, and its constants."""
    rng, width = np.random.default_rng(seed), DOMAIN // 100
    lows = rng.integers(0, DOMAIN - width, (count, 2))
    columns = [lows[:, 0], lows[:, 0] + width, lows[:, 1], lows[:, 1] + width]
    return template(("x", Op.GE), ("x", Op.LT), ("y", Op.GE), ("y", Op.LT)), columns


def texts_of(where: Expression, columns: list[npt.NDArray[np.int64]]) -> list[str]:
    """Return the texts of the predicates that a template has with these constants."""
    text = predicate_key(normal(where)).replace("{", "{{").replace("}", "}}")
    for number in range(len(columns)):
        text = text.replace(str(1111 * (number + 1)), f"{{{number}}}")
    return [text.format(*row) for row in zip(*map(np.ndarray.tolist, columns), strict=True)]


def template(*parts: tuple[str, Op]) -> Expression:
    """Return a conjunction of comparisons with the constants 1111, 2222 and so on."""
    conditions = [
        Call(op, (ColumnRef(name, BIGINT), Literal(1111 * number, BIGINT)), BOOLEAN)
        for number, (name, op) in enumerate(parts, 1)
    ]
    return Call(Op.AND, tuple(conditions), BOOLEAN)


class BenchmarkEngine:
    """The steps and slices of an engine, without its loop."""

    def __init__(self, store: Store, spark: SparkSession) -> None:
        self.settings = EngineSettings()
        self.spark = spark
        self.ledger = open_ledger(store)
        self.memory = StepMemory()
        self.backfill = Backfill(spark, self.settings)

    def step(self) -> bool:
        """Take the rest of the log as one step; return False if there is none."""
        version = self.ledger.epoch.log_version
        limits = StepLimits(self.ledger.store.log.latest_version(version) - version, sys.maxsize)
        if limits.commits:
            stretch = next_stretch(self.ledger.store.log.folder, version, limits)
            take_step(self.ledger, self.spark, stretch, self.settings, self.memory)
        return bool(limits.commits)
