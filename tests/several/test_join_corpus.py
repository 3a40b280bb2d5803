"""Hundreds of joins that other people wrote, with the rows they expect."""

from __future__ import annotations

from pathlib import Path

import pytest

from querystem.language import bind_query
from tests.oracle.join_corpus import JoinCorpus, load_joins
from tests.support.several import pure_answer
from tests.support.system.processes import RunningStore

ALL = 731
_IN_A_STORE = 100


@pytest.fixture(scope="module")
def corpus(shared_data: Path) -> JoinCorpus:
    return load_joins(shared_data / "where" / "joins.jsonl.gz")


def test_every_join_finds_its_rows(corpus: JoinCorpus) -> None:
    assert len(corpus.cases) == ALL
    lookup = corpus.schemas.get
    wrong = [
        case.sql
        for case in corpus.cases
        if not case.is_answered_by(pure_answer(bind_query(case.sql, lookup), corpus.world))
    ]
    assert not wrong, wrong[:5]


def test_oracle_finds_the_rows_of_some_joins(corpus: JoinCorpus) -> None:
    lookup = corpus.schemas.get
    for case in corpus.cases[:: ALL // 12]:
        answer = corpus.world.answer(bind_query(case.sql, lookup))
        assert case.is_answered_by(answer), case.sql


@pytest.mark.process
@pytest.mark.timeout(600)
def test_a_store_finds_the_rows_of_some_joins(corpus: JoinCorpus, tmp_path: Path) -> None:
    with RunningStore(tmp_path) as store:
        store.start_server()
        client = store.client()
        for name, stream in corpus.world.streams.items():
            columns = stream.schema.columns
            declared = ", ".join(f"{column.name} {column.type}" for column in columns)
            client.define(f"CREATE STREAM {name} ({declared})")
            names = [column.name for column in columns]
            client.publish(
                name,
                [{column_name: row[column_name] for column_name in names} for row in stream.rows],
            )
        for case in corpus.cases[:: ALL // _IN_A_STORE]:
            rows = [tuple(row.values()) for row in client.ask(case.sql).rows]
            assert case.is_answered_by(rows), case.sql
