"""What was kept is written twice, and a sync went on with the one that was left without writing the
other again: damage to that one, long after, lost what was kept."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from client_sdk import Copies
from tests.support.client_sdk.damage import flip_in_state
from tests.support.client_sdk.inside import InsideStore


@pytest.mark.parametrize("columns", [("declaration", "spare"), ("spare", "declaration"), ("name",)])
def test_damage_to_one_and_later_to_the_other(tmp_path: Path, columns: tuple[str, ...]) -> None:
    store = InsideStore(tmp_path)
    store.client.define("CREATE STREAM s (a BIGINT)")
    with Copies(tmp_path / "copies.db") as copies:
        copies.keep("all", "SELECT a FROM s UNBOUNDED")
        for column in columns:
            assert flip_in_state(copies, "all", random.Random(5), column)
            assert copies.sync(store.client).complete
            with copies._file.reading() as connection:
                row = connection.execute("SELECT name, declaration, spare FROM _psoup_copies")
                name, first, second = row.fetchone()
            assert name == "all" and first == second
    store.close()
