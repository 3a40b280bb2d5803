"""Erased rows leave devices that were away: copies, changes, queued edits, and the bytes of the
file."""

from __future__ import annotations

from pathlib import Path

import pytest

from client_sdk import Client, Copies
from tests.support.engine.leftovers import leftovers

pytestmark = pytest.mark.process

PEOPLE = "CREATE STREAM people (id BIGINT, name TEXT, region TEXT) KEY (id)"
NAME = "Annabella-Zyx"
COPIES = {
    "rows": "SELECT id, name FROM people",
    "sorted": "SELECT name FROM people ORDER BY name",
    "groups": "SELECT name, COUNT(*) AS n FROM people GROUP BY name",
    "regions": "SELECT DISTINCT region FROM people",
    "newest": "SELECT name FROM people ROWS 2",
}


def person(number: int, name: str, region: str = "n") -> dict[str, object]:
    return {"id": number, "name": name, "region": region}


@pytest.fixture
def phone(client: Client, tmp_path: Path) -> Path:
    """A device that has synced, and has been away since its key was erased."""
    client.define(PEOPLE)
    client.publish("people", [person(1, NAME, "west"), person(2, "Bob"), person(3, "Cy")])
    path = tmp_path / "phone" / "copies.db"
    path.parent.mkdir()
    with Copies(path) as copies:
        for name, text in COPIES.items():
            copies.keep(name, text)
        copies.keep("base", COPIES["groups"], base_rows=True)
        copies.keep("changes", COPIES["rows"], changes=True)
        copies.keep("counts", COPIES["groups"], changes=True)
        assert copies.sync(client).complete
        copies.publish("people", [person(1, "Anna")])
    assert leftovers(path.parent, NAME)
    client.define("ERASE FROM people WHERE id = 1")
    client.publish("people", [person(4, "Di")])
    return path


def test_a_device_that_was_away_loses_everything(client: Client, phone: Path) -> None:
    with Copies(phone) as copies:
        synced = copies.sync(client)
        assert synced.complete
        assert [rejected.reason for rejected in synced.sent.rejected] == ["ERASED"]
        names = {"Bob", "Cy", "Di"}
        assert {row["name"] for row in copies["rows"].rows()} == names
        assert {row["name"] for row in copies["groups"].rows()} == names
        assert {row["name"] for row in copies["base"].rows()} == names
        assert {row["name"] for row in copies["newest"].rows()} == {"Cy", "Di"}
        assert [row["region"] for row in copies["regions"].rows()] == ["n"]
        reasons = {name: synced[name].reason for name in (*COPIES, "base", "changes", "counts")}
        assert {name for name, reason in reasons.items() if reason == "ERASED"} == {
            "groups", "regions", "newest", "counts",
        }  # fmt: skip
        with copies.changes("changes") as batch:
            assert [(change.tag, change.why) for change in batch if change.tag == "-"] == [
                ("-", "ended")
            ]
        with copies.changes("counts") as batch:
            tags = sorted(
                (change.tag, (change.row or change.old or {})["name"]) for change in batch
            )
            assert tags == [("+", "Di"), ("-", NAME)] and not batch.reset
    assert not leftovers(phone.parent, NAME)
