"""Pulls that were away while rows were erased: their next output lacks them."""

from __future__ import annotations

import json

import pytest

from client_sdk import pull_once
from tests.client_sdk.pulls.conftest import Place

pytestmark = pytest.mark.process

ROOMS = "CREATE STREAM rooms (room TEXT, temp DOUBLE) KEY (room)"


def test_outputs_and_changes_lose_erased_rows(place: Place) -> None:
    place.client.define(ROOMS)
    place.client.publish("rooms", [{"room": name, "temp": 90.0} for name in ("ann", "bob")])
    to = place.folder / "changes.jsonl"
    rows = place.pull("rows.csv", sql="SELECT room, temp FROM rooms", changes_to=to)
    count = place.pull("count.csv", sql="SELECT COUNT(*) AS n FROM rooms")
    for pull in (rows, count):
        pull_once(place.client, pull)
    assert "ann" in rows.to.read_text() and "2" in count.to.read_text()
    place.client.define("ERASE FROM rooms WHERE room = 'ann'")
    for pull in (rows, count):
        pull_once(place.client, pull)
    assert "ann" not in rows.to.read_text() and "bob" in rows.to.read_text()
    assert count.to.read_text().split()[1:] == ["1"]
    (removed,) = [json.loads(line) for line in to.read_text().splitlines()]
    assert (removed["_tag"], removed["_why"]) == ("-", "ended")
