"""Columns added, renamed and dropped between the commits of a store whose servers and engine are
killed: a stream that grew is that which was made whole, in selections, groups and joins that the
engine finds ahead.

Short versions without processes are in tests/server/test_alter.py and tests/engine/test_crash.py.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from client_sdk import Client, ConnectionFailed
from tests.support.system.processes import RunningStore

pytestmark = [
    pytest.mark.process,
    pytest.mark.spark,
    pytest.mark.long,
    pytest.mark.timeout(900),
]

# Name, type, default as written and as a value, other values.
ADDED: tuple[tuple[str, str, str, Any, tuple[Any, ...]], ...] = (
    ("lots", "BIGINT", "DEFAULT 3", 3, (1, 7, None)),
    ("venue", "TEXT", "", None, ("lse", "xetra")),
    ("fee", "DOUBLE", "DEFAULT 0.5", 0.5, (0.0, 2.5)),
)
DEFAULTS = {name: default for name, _, _, default, _ in ADDED}
QUERIES = (
    ("lots", "SELECT id, lots FROM {} WHERE lots = 3"),
    ("lots", "SELECT lots, count(*) AS n FROM {} GROUP BY lots"),
    # The join is found ahead, by a column that old files lack.
    ("lots", "SELECT t.id, p.name FROM {} AS t JOIN parts AS p ON t.lots = p.n RANGE 1 DAY"),
    ("venue", "SELECT id, venue FROM {} WHERE venue IS NULL OR venue LIKE 'x%'"),
    ("fee", "SELECT id, lots, venue, fee FROM {} WHERE fee < 1 AND lots > 1"),
)


class Life:
    """Rows of two streams and queries over both; each of them is made once, whatever is killed."""

    def __init__(self, store: RunningStore) -> None:
        self.store, self.dice = store, Random(5)
        self.added = 0
        # The present names of renamed columns of `grown`.
        self.labels: dict[str, str] = {}
        self.rows = 0
        self.keys: list[str] = []
        self.sequences = {"grown": 0, "made": 0}

    def retry(self, work: Any) -> Any:
        """Do something until a server has done it; start another server if there is none."""
        while True:
            try:
                with self.store.client(-1) as client:
                    return work(client)
            except ConnectionFailed:
                self.store.start_server()

    def create(self) -> None:
        whole = "".join(f", {name} {type_}" for name, type_, *_ in ADDED)
        for sql in (
            "CREATE STREAM grown (id BIGINT)",
            f"CREATE STREAM made (id BIGINT{whole})",
            "CREATE STREAM parts (n BIGINT, name TEXT)",
        ):
            self.retry(lambda client, sql=sql: client.define(sql))
        parts = [{"n": number, "name": f"part {number}"} for number in (1, 3, 7)]
        self.retry(lambda client: client.publish("parts", parts))

    def alter(self) -> None:
        if self.added == len(ADDED):
            self.rename()
            return
        name, type_, default, *_ = ADDED[self.added]

        def work(client: Client) -> None:
            # A server that was killed may have done it before.
            if name not in [column.name for column in client.stream("grown").columns]:
                client.define(f"ALTER STREAM grown ADD COLUMN {name} {type_} {default}")

        self.retry(work)
        self.added += 1

    def rename(self) -> None:
        """Rename a column, and drop one that was added before."""
        name = self.dice.choice([name for name, *_ in ADDED])
        before, after = self.labels.get(name, name), f"{name}_{self.rows}"

        def work(client: Client) -> None:
            names = [column.name for column in client.stream("grown").columns]
            if after not in names:
                client.define(f"ALTER STREAM grown RENAME COLUMN {before} TO {after}")
            if "note" not in names:
                client.define("ALTER STREAM grown ADD COLUMN note TEXT DEFAULT 'x'")
            if "note" in [column.name for column in client.stream("grown").columns]:
                client.define("ALTER STREAM grown DROP COLUMN note ACCEPT OLD NAME FOR 0 DAYS")

        self.retry(work)
        self.labels[name] = after

    def publish(self) -> None:
        rows = []
        for _ in range(self.dice.randrange(1, 40)):
            row: dict[str, Any] = {"id": self.rows}
            for place, (name, _, _, default, values) in enumerate(ADDED):
                changed = place < self.added and self.dice.random() < 0.4
                row[name] = self.dice.choice(values) if changed else default
            rows.append(row)
            self.rows += 1
        # Publishers may use a former name.
        labels = self.labels if self.dice.random() < 0.5 else {}
        sent = [self._sent(row) for row in rows]
        grown = [{labels.get(name, name): row[name] for name in row} for row in sent]
        for stream, batch in (("grown", grown), ("made", rows)):
            self.sequences[stream] += 1
            self.retry(partial(self._publish, stream, batch))

    def _sent(self, row: dict[str, Any]) -> dict[str, Any]:
        """Return a row of `grown`. Some leave a column out whose default they mean."""
        names = {"id", *(name for name, *_ in ADDED[: self.added])}
        means_default = row["id"] % 3 > 0
        return {
            name: value
            for name, value in row.items()
            if name in names and not (means_default and value == DEFAULTS.get(name, ...))
        }

    def _publish(self, stream: str, rows: list[dict[str, Any]], client: Client) -> None:
        publisher = client.publisher(stream, next_sequence=self.sequences[stream])
        publisher.publish(stream, rows)

    def register(self) -> None:
        names = {name for name, *_ in ADDED[: self.added]}
        for number, (column, sql) in enumerate(QUERIES):
            if column in names and f"q{number}" not in self.keys:
                for stream in ("grown", "made"):
                    text, key = sql.format(stream), f"q{number}-{stream}"
                    self.retry(lambda client, text=text, key=key: client.register(text, key=key))
                self.keys.append(f"q{number}")

    def check(self) -> None:
        for key in self.keys:
            self.retry(partial(self._check, key))

    def _check(self, key: str, client: Client) -> None:
        _, sql = QUERIES[int(key[1:])]
        answers = [
            client.invoke(client.register(sql.format(stream), key=f"{key}-{stream}"))
            for stream in ("grown", "made")
        ]
        grown, expected = (sorted(map(str, answer.rows)) for answer in answers)
        assert grown == expected, key


def test_columns_are_added_while_servers_and_engines_are_killed(tmp_path: Path) -> None:
    with RunningStore(tmp_path) as store:
        store.start_server()
        engine = store.start_engine()
        life = Life(store)
        life.create()
        for step in range(36):
            life.publish()
            if step % 6 == 3:
                life.alter()
            life.register()
            life.check()
            if life.dice.random() < 0.25:
                store.servers[-1].kill()
            if step % 8 == 5:
                engine.kill()
                engine = store.start_engine(ready=False)
        assert life.added == len(ADDED)
        life.retry(store.wait_until_matched)
        life.check()
        # A server that knows only what the engine left.
        store.start_server()
        life.check()
