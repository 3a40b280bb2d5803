"""What was erased after a back-up was made is erased again in the store restored from it."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import Result

from psoup.store.backup.making import back_up
from tests.store.backup.life import Life, all_prices
from tests.store.backup.test_backup import run


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
