"""An answer over two streams is that of one prefix of the log, also during publishes."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from client_sdk import Client
from tests.support.system.processes import RunningStore

pytestmark = [pytest.mark.process, pytest.mark.timeout(900)]

PAIRS = 150
SIDES = (
    "SELECT x.side, count(*) AS n FROM"
    " (SELECT 'r' AS side FROM r UNION ALL SELECT 's' AS side FROM s) AS x GROUP BY x.side"
)
JOINED = "SELECT count(*) AS n, max(r.k) AS newest FROM r JOIN s ON r.k = s.k"


def test_two_legs_are_read_at_one_position(tmp_path: Path) -> None:
    """One client publishes k to `r` and then to `s`; no answer has `s` ahead of `r`, or `r` by more
    than one row ahead."""
    with RunningStore(tmp_path) as store:
        targets = [store.start_server() for _ in range(2)]
        with Client(targets[0]) as writer, Client(targets[1]) as reader:
            for name in "rs":
                writer.define(f"CREATE STREAM {name} (k BIGINT)")
            reader.position = writer.position
            handles = [reader.register(sql).handle for sql in (SIDES, JOINED)]
            publisher = threading.Thread(target=_publish, args=(writer,))
            publisher.start()
            lengths = set()
            while publisher.is_alive():
                sides = {row["side"]: row["n"] for row in reader.invoke(handles[0])}
                assert sides.get("r", 0) - sides.get("s", 0) in (0, 1)
                (joined,) = reader.invoke(handles[1]).rows
                assert joined["newest"] == (joined["n"] - 1 if joined["n"] else None)
                assert joined["n"] >= sides.get("s", 0)
                lengths.add(joined["n"])
            publisher.join()
            reader.position = writer.position
            assert reader.invoke(handles[1]).rows == [{"n": PAIRS, "newest": PAIRS - 1}]
            assert len(lengths) > 3


def _publish(writer: Client) -> None:
    for number in range(PAIRS):
        for name in "rs":
            writer.publish(name, [{"k": number}])
