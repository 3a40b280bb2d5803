"""A store restored from a back-up, as of its end or of any commit, and how clients notice."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest

from client_sdk import Client, Copies, InvalidRequest, Retry
from datastem.instants import from_micros
from psoup.store import Store
from psoup.store.backup import folder as folders
from psoup.store.backup.making import back_up
from psoup.store.backup.restoring import restore
from psoup.store.delta import durable
from psoup.store.errors import BackupFailed, Repairing
from tests.store.backup.life import Life, all_prices
from tests.store.backup.test_backup import run
from tests.support.client_sdk.inside import InsideStore


def test_every_commit_after_the_epoch_can_be_restored(life: Life, tmp_path: Path) -> None:
    """The rows are those published up to the point, for each version, instant and position."""
    life.begin()
    life.publish(4)
    life.engine.step()
    points: list[tuple[str, int, int]] = []
    for _ in range(2):
        points.append((str(life.store.log.latest_version()), life.inside.clock, life.prices))
        position = life.client.position
        assert position is not None
        points.append((position.hex(), life.inside.clock, life.prices))
        life.publish(1)
    back_up(life.root, tmp_path / "target")
    for number, (version, clock, prices) in enumerate(points):
        for name, at in (("v", version), ("i", from_micros(clock).isoformat())):
            folder = tmp_path / f"{name}{number}"
            done = run("restore", tmp_path / "target", folder / "store", "--at", at)
            assert done.exit_code == 0, done.output
            assert all_prices(folder) == list(range(prices)), at
    later = from_micros(life.inside.clock + 10**9).isoformat()
    run("restore", tmp_path / "target", tmp_path / "later" / "store", "--at", later)
    assert all_prices(tmp_path / "later") == list(range(6))


def test_the_back_up_that_holds_the_point_is_chosen(life: Life, tmp_path: Path) -> None:
    life.begin()
    ends = []
    for _ in range(3):
        life.publish(2)
        life.engine.step()
        life.publish(2)
        back_up(life.root, tmp_path / "target")
        ends.append((life.store.log.latest_version(), life.inside.clock))
        life.publish(2)
    version, clock = ends[1]
    restore_at: list[str | Path] = [
        "restore",
        tmp_path / "target",
        tmp_path / "second" / "store",
        "--at",
    ]
    done = run(*restore_at, str(version))
    assert done.exit_code == 0 and "000002" in done.output
    assert all_prices(tmp_path / "second") == list(range(10))
    restore_at[2] = tmp_path / "third" / "store"
    for at in (str(version + 1), from_micros(clock + 1).isoformat()):
        done = run(*restore_at, at)
        assert done.exit_code == 1 and "no back-up holds that point: 000002" in done.output
    for at in ("1", "1999-01-01"):
        done = run(*restore_at, at)
        assert done.exit_code == 1 and "the oldest back-up begins later" in done.output
    for at, problem in (("yesterday", "not an instant"), ("x" * 48, "hexadecimal")):
        done = run(*restore_at, at)
        assert done.exit_code == 2 and problem in done.output
    done = run(*restore_at, "00" * 24)
    assert done.exit_code == 1 and "another store" in done.output
    done = run(*restore_at, str(10**30))
    assert done.exit_code == 1
    assert not (tmp_path / "third").exists()


def test_old_positions_and_tokens_are_foreign(life: Life, tmp_path: Path) -> None:
    life.begin()
    life.publish(3)
    with Copies(tmp_path / "copies.db", clock=life.inside.now) as copies:
        copies.keep("all", "SELECT price FROM trades RANGE 10 MINUTES")
        copies.sync(life.client)
        life.engine.step()
        back_up(life.root, tmp_path / "target")
        life.publish(2)
        copies.sync(life.client)
        position = life.client.position
        restore(tmp_path / "target", tmp_path / "second" / "store")
        second = InsideStore(tmp_path / "second")
        second.clock = life.inside.clock
        client = Client(transport=second.line, retry=Retry(attempts=3, first=0.0))
        with pytest.raises(InvalidRequest) as refused:
            client.invoke("q0", least_position=position)
        assert refused.value.reason == "FOREIGN_POSITION"
        report = copies.sync(client)
        assert report.complete
        assert report["all"].reason == "FOREIGN_TOKEN"
        assert sorted(copies["all"].to_arrow().column("price").to_pylist()) == [0, 1, 2]
        second.close()


def test_a_store_is_never_restored_over(life: Life, tmp_path: Path) -> None:
    life.begin()
    back_up(life.root, tmp_path / "target")
    before = {path: path.stat().st_mtime_ns for path in life.root.rglob("*")}
    done = run("restore", tmp_path / "target", life.root)
    assert done.exit_code == 1 and "is not empty" in done.output
    assert before == {path: path.stat().st_mtime_ns for path in life.root.rglob("*")}
    done = run("restore", tmp_path / "nothing", tmp_path / "second")
    assert done.exit_code == 1 and "not a folder with back-ups" in done.output
    assert run("restore", tmp_path / "target").exit_code == 2
    assert run("restore", tmp_path / "target", tmp_path / "b", "--in-place").exit_code == 2


def test_an_interrupted_restore_is_no_store_and_goes_on(
    life: Life, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    life.begin()
    life.publish(5)
    life.engine.step()
    target, root = tmp_path / "target", tmp_path / "second" / "store"
    size = len(back_up(life.root, target).generation.marks())
    copy_file = durable.copy_file
    for limit in range(0, size, 7):
        shutil.rmtree(root, ignore_errors=True)
        count = 0

        def copy(source: Path, path: Path, limit: int = limit) -> tuple[int, int]:
            nonlocal count
            count += 1
            if count > limit:
                raise OSError(errno.EIO, "unplugged")
            return copy_file(source, path)

        monkeypatch.setattr(folders, "copy_file", copy)
        with pytest.raises(OSError, match="unplugged"):
            restore(target, root)
        with pytest.raises(Repairing, match="psoup restore"):
            Store.open(root, create=True)
    monkeypatch.setattr(folders, "copy_file", copy_file)
    life.publish(1)
    back_up(life.root, target)
    with pytest.raises(BackupFailed, match="another restore"):
        restore(target, root)
    shutil.rmtree(sorted(target.glob("000002-*"))[0])
    restore(target, root)
    assert all_prices(tmp_path / "second") == list(range(5))


@pytest.mark.parametrize("place", ["first line", "middle", "last line", "empty"])
def test_a_damaged_manifest_is_refused(life: Life, tmp_path: Path, place: str) -> None:
    life.begin()
    manifest = Path(back_up(life.root, tmp_path / "target").generation.place) / "manifest.jsonl"
    lines = manifest.read_text().splitlines()
    match place:
        case "first line":
            lines[0] = lines[0].replace('"epoch": 1', '"epoch": 2')
        case "middle":
            del lines[len(lines) // 2]
        case "last line":
            del lines[-1]
        case "empty":
            lines = []
    manifest.write_text("\n".join(lines))
    done = run("restore", tmp_path / "target", tmp_path / "second")
    assert done.exit_code == 1 and "manifest" in done.output and "damaged" in done.output
    assert not (tmp_path / "second" / "log").exists()
