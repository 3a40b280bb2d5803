"""A source, and an engine that is killed while it runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.source.conftest import Sources
from tests.support.system.processes import RunningStore

pytestmark = [pytest.mark.process, pytest.mark.long]

ROWS = 2000
SOURCE = '[sources.doors]\nfiles = { pattern = "drop/*.csv", after = "delete" }\nstream = "s"\n'


def test_an_engine_is_killed_while_a_source_runs(tmp_path: Path) -> None:
    """The source does not notice; what the engine finds in the end is each row once."""
    with RunningStore(tmp_path) as store:
        sources = Sources(tmp_path, store.start_server(), "main")
        drop = tmp_path / "drop"
        drop.mkdir()
        count = 0

        def drop_file() -> None:
            nonlocal count
            part = drop / f"{count}.part"
            part.write_text("k\n" + "".join(f"{k}\n" for k in range(count, count + ROWS)))
            part.rename(drop / f"{count}.csv")
            count += ROWS

        try:
            sources.client.define("CREATE STREAM s (k BIGINT)")
            sources.client.register("SELECT k FROM s WHERE k % 7 = 0", key="sevenths")
            sources.write(SOURCE)
            process = sources.start()
            for _ in range(3):
                engine = store.start_engine()
                drop_file()
                # It is killed at work: at most some of the rows are in an epoch.
                sources.wait_for(lambda: sources.client.stream("s").row_count > count - ROWS)
                engine.kill()
                drop_file()
            sources.wait_for(lambda: sources.client.stream("s").row_count >= count)
            store.start_engine()
            store.wait_until_matched(sources.client)
            sevenths = sorted(row["k"] for row in sources.client.invoke("sevenths"))
            assert sevenths == list(range(0, count, 7))
            assert sources.client.stream("s").row_count == count
            sources.wait_for(lambda: not list(drop.glob("*.csv")))
            assert process.alive
        finally:
            sources.close()
