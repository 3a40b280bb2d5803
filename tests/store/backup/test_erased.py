"""What was erased after a back-up was made is erased again in the store restored from it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import Result

from client_sdk import PreconditionFailed
from datastem.equality import key_digests
from datastem.instants import DAY
from psoup.store.backup.erased_keys import KeySearch
from psoup.store.backup.making import back_up
from psoup.store.state.erasures import SALT_BYTES
from psoup.store.state.losses import Hole, Losses
from results.masking import masked
from tests.store.backup.life import Life, all_prices
from tests.store.backup.test_backup import run
from tests.support.client_sdk.inside import START, InsideStore


def listed(life: Life, path: Path) -> Path:
    done = run("erase", "--list", path, life.root)
    assert done.exit_code == 0, done.output
    return path


def restored(tmp_path: Path, name: str, erased: Path) -> Result:
    return run("restore", tmp_path / "target", tmp_path / name / "store", "--erased", erased)


def test_erasures_are_applied_to_restored_stores(life: Life, tmp_path: Path) -> None:
    life.begin()
    life.publish(4)
    life.engine.step()
    life.publish(2)
    back_up(life.root, tmp_path / "target")
    life.publish(2)
    life.client.define("ERASE FROM trades WHERE price = 1")
    life.client.define("ERASE FROM trades WHERE price = 5")
    life.client.define("ERASE FROM trades WHERE price = 7")
    path = listed(life, tmp_path / "erased.json")
    done = restored(tmp_path, "second", path)
    assert done.exit_code == 0 and "2 rows erased again" in done.output, done.output
    # The list has no value of a row, and rows after the back-up are not there.
    assert len(json.loads(path.read_text())["erasures"]) == 3
    assert all_prices(tmp_path / "second") == [0, 2, 3, 4]
    # What is erased already is not erased twice.
    back_up(life.root, tmp_path / "target")
    done = restored(tmp_path, "third", path)
    assert "0 rows erased again" in done.output, done.output
    assert all_prices(tmp_path / "third") == [0, 2, 3, 4, 6]


def test_lists_of_other_histories_are_refused(life: Life, tmp_path: Path) -> None:
    life.begin()
    life.publish(2)
    life.engine.step()
    back_up(life.root, tmp_path / "target")
    other = Life(tmp_path / "other")
    other.begin()
    other.publish(1)
    other.client.define("ERASE FROM trades WHERE price = 0")
    refused = restored(tmp_path, "second", listed(other, tmp_path / "other.json"))
    assert refused.exit_code == 1 and "another store" in refused.output
    other.close()
    bad = tmp_path / "bad.json"
    bad.write_text('{"psoup_erasures": 1}')
    refused = restored(tmp_path, "third", bad)
    assert refused.exit_code == 1 and "psoup erase --list" in refused.output


def test_status_and_refused_options(life: Life, tmp_path: Path) -> None:
    life.begin()
    life.publish(2)
    assert "nothing was erased" in run("erase", "--status", life.root).output
    life.client.define("ERASE FROM trades WHERE price = 1")
    status = run("erase", "--status", life.root, "--json")
    (form,) = json.loads(status.output)
    assert status.exit_code == 1 and not form["done"] and form["rows"] == 1
    assert "not consumed" in form["left"][0]
    life.engine.step()
    assert "not written" in run("erase", "--status", life.root).output
    assert run("erase", "--status", tmp_path / "none").exit_code == 1
    assert run("erase", "--status", "--list", "x", life.root).exit_code != 0
    assert run("erase", "trades").exit_code != 0


SALT = bytes(range(SALT_BYTES))
PEOPLE = "CREATE STREAM people (id BIGINT, name TEXT) KEY (id)"


def person(number: int, name: str) -> dict[str, object]:
    return {"id": number, "name": name}


def names(folder: Path, clock: int) -> list[str]:
    inside = InsideStore(folder)
    inside.clock = clock
    try:
        handle = inside.client.register("SELECT name FROM people").handle
        return sorted(inside.client.invoke(handle).to_arrow().column("name").to_pylist())
    finally:
        inside.close()


def test_a_restored_key_is_refused_for_as_long_as_before(life: Life, tmp_path: Path) -> None:
    life.client.define(PEOPLE)
    life.client.publish("people", [person(1, "Ann"), person(2, "Bob")])
    life.engine.step()
    back_up(life.root, tmp_path / "target")
    life.inside.wait(50 * 86_400)
    life.client.define("ERASE FROM people WHERE id = 1")
    path = listed(life, tmp_path / "erased.json")
    done = restored(tmp_path, "second", path)
    assert done.exit_code == 0, done.output
    second = InsideStore(tmp_path / "second")
    try:
        # 119 days after the back-up, 69 days after the erasure.
        second.clock = START + 119 * DAY
        with pytest.raises(PreconditionFailed, match="erased"):
            second.client.publish("people", [person(1, "Anna")])
        second.clock = START + 141 * DAY
        second.client.publish("people", [person(1, "Another Ann")])
    finally:
        second.close()


def test_rows_that_only_the_back_up_has_are_erased_by_their_key(life: Life, tmp_path: Path) -> None:
    """Retention had removed the rows when their key was erased, so the list does not name them."""
    life.client.define(PEOPLE)
    life.client.publish("people", [person(1, "Ann"), person(2, "Bob")])
    life.engine.step()
    life.client.publish("people", [person(1, "Anna"), person(3, "Cy")])
    back_up(life.root, tmp_path / "target")
    life.client.define("ERASE FROM people WHERE id = 1")
    path = listed(life, tmp_path / "erased.json")
    form = json.loads(path.read_text())
    for erasure in form["erasures"]:
        erasure["rows"] = ""
    path.write_text(json.dumps(form))
    done = restored(tmp_path, "second", path)
    assert done.exit_code == 0 and "2 rows erased again" in done.output, done.output
    assert names(tmp_path / "second", START) == ["Bob", "Cy"]


def test_a_key_that_came_back_keeps_its_later_rows(life: Life, tmp_path: Path) -> None:
    """The back-up is newer than the erasure, so its rows of the key came after it."""
    life.client.define(PEOPLE)
    life.client.publish("people", [person(1, "Ann"), person(2, "Bob")])
    life.client.define("ERASE FROM people WHERE id = 1")
    life.inside.wait(91 * 86_400)
    life.client.publish("people", [person(1, "Another Ann")])
    life.engine.step()
    back_up(life.root, tmp_path / "target")
    path = listed(life, tmp_path / "erased.json")
    assert "0 rows erased again" in restored(tmp_path, "second", path).output
    assert names(tmp_path / "second", life.inside.clock) == ["Another Ann", "Bob"]
    # Erased again after the back-up: the earlier erasure, which it has, is not the last.
    life.client.define("ERASE FROM people WHERE id = 1")
    path = listed(life, tmp_path / "erased.json")
    assert "1 row erased again" in restored(tmp_path, "third", path).output
    assert names(tmp_path / "third", life.inside.clock) == ["Bob"]


def test_a_restore_to_an_earlier_point_is_erased(life: Life, tmp_path: Path) -> None:
    """The back-up has the erasure, and the point lies before it."""
    life.begin()
    life.publish(3)
    life.engine.step()
    life.publish(2)
    version = life.store.log.latest_version()
    life.client.define("ERASE FROM trades WHERE price = 1")
    life.client.define("ERASE FROM trades WHERE price = 4")
    life.publish(1)
    back_up(life.root, tmp_path / "target")
    path, at = listed(life, tmp_path / "erased.json"), f"{version}"
    to = tmp_path / "second" / "store"
    done = run("restore", tmp_path / "target", to, "--at", at, "--erased", path)
    assert done.exit_code == 0 and "2 rows erased again" in done.output, done.output
    assert all_prices(tmp_path / "second") == [0, 2, 3]


def test_files_that_were_lost_are_not_searched(life: Life, tmp_path: Path) -> None:
    life.client.define(PEOPLE)
    life.client.publish("people", [person(1, "Ann"), person(2, "Bob")])
    life.engine.step()
    life.client.publish("people", [person(1, "Anna")])
    _, epoch = life.store.epochs.latest()
    (stream,) = life.store.state(epoch).streams.values()
    (file,) = life.store.stem_snapshot(epoch, stream.id).files.values()
    (life.store.stem(stream.id).path_of(file)).unlink()
    digest = int(masked(key_digests([pa.array([1])]), SALT)[0])
    with pytest.raises(FileNotFoundError):
        KeySearch(life.store, epoch, life.store.last_state(epoch)).rows(stream.id, digest, SALT)
    hole = Hole(stream.id, 0, 2, None, None, f"stems/{stream.id}/{file.path}")
    damaged = replace(epoch, losses=Losses((hole,), ()))
    search = KeySearch(life.store, damaged, life.store.last_state(epoch))
    assert search.rows(stream.id, digest, SALT).tolist() == [2]
