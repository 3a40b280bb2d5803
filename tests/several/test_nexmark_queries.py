"""NEXMark Q1 to Q6 in the numbering of the PIPES paper, at many instants; DuckDB as judge."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pytest

from tests.support.real.auctions import NEXMARK, auction_streams
from tests.support.real.filled import FilledStore
from tests.support.real.judge import StreamsJudge
from tests.support.system.duck import close


@pytest.fixture(scope="module")
def auctions(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> FilledStore:
    return FilledStore.of(
        tmp_path_factory.mktemp("auctions") / "store", auction_streams(shared_data)
    )


def instants(store: FilledStore) -> list[datetime]:
    """Instants at which something is opened, bid for or closed, and others just after."""
    dated = sorted({at for stream in store.streams for at in stream.rows["ts"].to_pylist()})
    return sorted({*dated[::5], *(at + timedelta(microseconds=1) for at in dated[::11])})


@pytest.mark.parametrize("name", NEXMARK)
def test_nexmark_is_duckdb_s(auctions: FilledStore, name: str) -> None:
    sql, duckdb_sql = NEXMARK[name]
    judge, compared = StreamsJudge(auctions.streams), 0
    for now in instants(auctions):
        expected = judge.answer(duckdb_sql, now)
        assert close(auctions.answer(sql, now), expected), now
        compared += bool(expected)
    assert compared >= 3, "nothing to compare"
