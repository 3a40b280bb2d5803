"""Pulls that append what changed, from a running server: each change once, whatever is killed."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import deltalake
import pytest

from client_sdk import Copies, OutputFailed, Pull, pull_once
from client_sdk.pulls import BadPull, load_pulls
from client_sdk.pulls import _changes as changes
from tests.client_sdk.pulls.conftest import Place

pytestmark = pytest.mark.process

ROOMS = "CREATE STREAM rooms (room TEXT, temp DOUBLE) KEY (room)"
HOT = "SELECT room, temp FROM rooms WHERE temp > 80"
FORMATS = ("jsonl", "delta")


@pytest.fixture(params=FORMATS)
def pull(request: pytest.FixtureRequest, place: Place) -> Pull:
    place.client.define(ROOMS)
    to = place.folder / f"changes.{request.param}"
    pull = place.pull("hot.csv", sql=HOT, changes_to=to)
    assert pull_once(place.client, pull).changes == 0
    return pull


def measure(place: Place, room: str, temp: float) -> None:
    place.client.publish("rooms", [{"room": room, "temp": temp}])


def appended(pull: Pull) -> list[dict[str, Any]]:
    path = pull.changes_path
    assert path is not None
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text().splitlines()]
    rows: list[dict[str, Any]] = deltalake.DeltaTable(str(path)).to_pyarrow_table().to_pylist()
    return sorted(rows, key=lambda row: (row["_number"], row["_tag"] != "reset"))


def tags(pull: Pull) -> list[tuple[str, Any]]:
    return [(row["_tag"], row.get("temp")) for row in appended(pull)]


def test_each_pull_appends_what_changed(place: Place, pull: Pull) -> None:
    for temp in (99.0, 95.0, float("inf"), 20.0):
        measure(place, "a", temp)
        assert pull_once(place.client, pull).changes == 1
    assert pull_once(place.client, pull).changes == 0
    lines = appended(pull)
    odd = float("inf") if pull.changes_path and pull.changes_path.suffix == ".delta" else "Infinity"
    assert tags(pull) == [("+", 99.0), ("u", 95.0), ("u", odd), ("-", odd)]
    assert [row["_why"] for row in lines] == ["new", "changed", "changed", "ended"]
    assert [row["_number"] for row in lines] == sorted(row["_number"] for row in lines)
    # Another test may have moved the clock of the log ahead: NOW stands still until then.
    assert lines[0]["_at"] <= lines[1]["_at"]
    if "_old" in lines[1]:
        assert lines[1]["_old"] == {"room": "a", "temp": 99.0}


@pytest.mark.parametrize("form", FORMATS)
def test_each_pull_appends_every_refresh_point(place: Place, form: str) -> None:
    place.client.define(
        "CREATE STREAM steps (n BIGINT, at TIMESTAMP) ORDERED BY at RETAIN 10 SECONDS"
    )
    sql = "SELECT count(*) AS temp FROM steps RANGE 4 SECONDS REFRESH EVERY 2 SECONDS"
    to = place.folder / f"changes.{form}"
    pull = place.pull("steps.csv", sql=sql, changes_to=to, every_point=True)
    begin = datetime(2026, 11, 16, 9, tzinfo=UTC)

    def step(*seconds: int) -> None:
        for second in seconds:
            at = begin + timedelta(seconds=second)
            place.client.publish("steps", [{"n": second, "at": at}])

    step(0)
    assert pull_once(place.client, pull).changes == 0
    step(1, 2, 5, 8)
    assert pull_once(place.client, pull).changes == 4
    assert tags(pull) == [("u", 3), ("u", 2), ("u", 1), ("u", 2)]
    step(30, 50)
    pull_once(place.client, pull)
    assert tags(pull)[4:] == [("skip", None), ("u", 0), ("u", 1)]
    skipped = appended(pull)[4]
    assert skipped["_why"] == "retention"
    with pytest.raises(BadPull, match="every_point"):
        replace(pull, changes_to=None)


def test_a_batch_that_was_appended_and_not_left(
    place: Place, pull: Pull, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure(place, "a", 99)
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr("client_sdk.copies._copies.leave_batch", _killed)
        pull_once(place.client, pull)
    assert tags(pull) == [("+", 99.0)]
    measure(place, "b", 98)
    pull_once(place.client, pull)
    assert tags(pull) == [("+", 99.0), ("+", 98.0)]


def _killed(*_: Any) -> None:
    raise KeyboardInterrupt


def test_a_line_that_was_cut(place: Place) -> None:
    place.client.define(ROOMS)
    pull = place.pull("hot.csv", sql=HOT, changes_to=place.folder / "changes.jsonl")
    path = place.folder / "changes.jsonl"
    path.write_bytes(b"somebody else's, without an end")
    pull_once(place.client, pull)
    for room in ("a", "b"):
        measure(place, room, 99)
        pull_once(place.client, pull)
    whole = path.read_bytes()
    assert whole.splitlines()[0] == b"somebody else's, without an end" and whole.endswith(b"\n")
    path.write_bytes(whole + b'{"_number": 17, "_ta')
    measure(place, "c", 99)
    pull_once(place.client, pull)
    *before, last = path.read_bytes().splitlines(keepends=True)
    assert b"".join(before) == whole and json.loads(last)["room"] == "c"
    path.unlink()
    measure(place, "d", 99)
    pull_once(place.client, pull)
    assert [row["room"] for row in appended(pull)] == ["d"]


def test_a_state_that_was_lost_begins_anew(place: Place, pull: Pull) -> None:
    measure(place, "a", 99)
    pull_once(place.client, pull)
    pull.state_path.unlink()
    pull_once(place.client, pull)
    measure(place, "a", 98)
    pull_once(place.client, pull)
    assert sorted(tags(pull)) == [("+", 99.0), ("u", 98.0)]


def test_a_reset_has_all_rows(place: Place, pull: Pull) -> None:
    """Another text, with other columns: there is nothing to compare."""
    measure(place, "a", 99)
    pull_once(place.client, pull)
    replaced = replace(pull, sql="SELECT room FROM rooms WHERE temp > 80")
    pull_once(place.client, replaced)
    marker, *rows = appended(replaced)[1:]
    assert (marker["_tag"], marker["_why"]) == ("reset", "REPLACED")
    if "rows" in marker:
        rows = marker["rows"]
    assert [row["room"] for row in rows] == ["a"]
    measure(place, "b", 98)
    pull_once(place.client, replaced)
    assert appended(replaced)[-1]["room"] == "b"


def test_an_output_that_can_t_be_written(
    place: Place, pull: Pull, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure(place, "a", 99)
    with monkeypatch.context() as patched:
        for sink in (changes.JsonLineChanges, changes.DeltaChanges):
            patched.setattr(sink, "append", _full)
        with pytest.raises(OutputFailed, match="no room"):
            pull_once(place.client, pull)
    pull_once(place.client, pull)
    assert tags(pull) == [("+", 99.0)]


def _full(*_: Any, **__: Any) -> None:
    raise OSError("no room")


def test_left_out_again_no_changes_are_kept(place: Place, pull: Pull) -> None:
    measure(place, "a", 99)
    pull_once(place.client, replace(pull, changes_to=None))
    with Copies(pull.state_path) as copies, pytest.raises(ValueError, match="no changes"):
        copies.changes("hot").__enter__()


def test_what_can_t_be(place: Place, tmp_path: Path) -> None:
    with pytest.raises(BadPull, match=r"\.jsonl, \.ndjson, \.delta"):
        changes.change_sink_for(tmp_path / "changes.csv")
    with pytest.raises(BadPull, match="no folder"):
        changes.change_sink_for(tmp_path / "no" / "changes.jsonl")
    with pytest.raises(BadPull, match="can't be the output"):
        place.pull("hot.jsonl", changes_to=place.folder / "hot.jsonl")
    text = '[pulls.{0}]\nsql = "SELECT 1"\nto = "{0}.csv"\nchanges_to = "c.jsonl"\n'
    file = tmp_path / "pulls.toml"
    file.write_text(text.format("a"))
    (error,) = load_pulls(file)
    assert error.changes_to == tmp_path / "c.jsonl"
    file.write_text(text.format("a") + text.format("b"))
    with pytest.raises(BadPull, match="another pull"):
        load_pulls(file)
