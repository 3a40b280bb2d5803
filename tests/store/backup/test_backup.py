"""A back-up holds what its manifest names, goes on after an interruption, and is a store."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from datastem.instants import HOUR
from psoup.cli import cli
from psoup.store import Store
from psoup.store.backup import folder as folders
from psoup.store.backup.copying import damaged_files
from psoup.store.backup.folder import FolderFiles, locked_folder
from psoup.store.backup.generations import Generation, now_micros
from psoup.store.backup.making import BackupOptions, back_up
from psoup.store.backup.pins import PINS
from psoup.store.backup.restoring import restore
from psoup.store.backup.targets import read_target
from psoup.store.delta import durable
from psoup.store.errors import BackupFailed
from tests.store.backup.life import Life, all_prices, answers


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


def listed(target: Path) -> list[Generation]:
    with read_target(target) as all_generations:
        return all_generations


def store_of(generation: Generation) -> Path:
    """Return the folder with the files of a back-up."""
    assert isinstance(generation.files, FolderFiles)
    return generation.files.root


def restored(target: Path, folder: Path) -> Path:
    """Restore the newest back-up to `folder`/store; return the folder."""
    folder.mkdir()
    restore(target, folder / "store")
    return folder


def test_a_restored_store_answers_as_the_original(life: Life, tmp_path: Path) -> None:
    life.begin()
    life.publish(20)
    life.engine.step()
    life.publish(7)
    done = run("backup", life.root, tmp_path / "target")
    assert done.exit_code == 0, done.output
    assert f"up to log version {life.store.log.latest_version()}" in done.output
    assert not list((life.root / PINS).iterdir())
    done = run("restore", tmp_path / "target", tmp_path / "second" / "store")
    assert done.exit_code == 0, done.output
    clock = life.inside.clock
    life.close()
    assert answers(tmp_path / "second", clock) == answers(life.folder, clock)
    assert all_prices(tmp_path / "second") == list(range(27))
    assert Store(tmp_path / "second" / "store").identity != Store(life.root).identity


def test_a_store_without_an_epoch_is_backed_up(life: Life, tmp_path: Path) -> None:
    life.client.define("CREATE STREAM trades (symbol TEXT, price BIGINT)")
    life.publish(3)
    back_up(life.root, tmp_path / "target")
    assert all_prices(restored(tmp_path / "target", tmp_path / "second")) == [0, 1, 2]


def test_the_next_back_up_links_what_the_last_one_has(life: Life, tmp_path: Path) -> None:
    life.begin()
    life.publish(10)
    life.engine.step()
    target = tmp_path / "target"
    first = back_up(life.root, target)
    assert first.copied == first.size
    life.publish(2)
    life.engine.step()
    second = back_up(life.root, target)
    assert 0 < second.copied < first.copied / 2
    first_copy, second_copy = listed(target)
    assert (first_copy.header.epoch, second_copy.header.epoch) == (2, 3)
    shared = [path for path in second_copy.marks() if (store_of(first_copy) / path).exists()]
    linked = [
        path
        for path in shared
        if os.path.samefile(store_of(first_copy) / path, store_of(second_copy) / path)
    ]
    assert len(linked) > 10
    assert all(
        first_copy.marks()[path] != second_copy.marks()[path] for path in set(shared) - set(linked)
    )
    # The first one stays what it was, also without the second.
    shutil.rmtree(Path(second_copy.place))
    assert all_prices(restored(target, tmp_path / "second")) == list(range(10))


def test_the_back_up_after_a_full_disk_goes_on(
    life: Life, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    life.begin()
    for _ in range(6):
        life.publish(3)
        life.engine.step()
    target, copy_file, names = tmp_path / "target", durable.copy_file, list[str]()

    def copy(source: Path, path: Path) -> tuple[int, int]:
        names.append(path.name)
        if len(names) > 10:
            raise OSError(errno.ENOSPC, "No space left on device")
        return copy_file(source, path)

    monkeypatch.setattr(folders, "copy_file", copy)
    done = run("backup", life.root, target)
    assert done.exit_code == 1 and "No space left" in done.output
    assert listed(target) == [] and not list((life.root / PINS).iterdir())
    with pytest.raises(BackupFailed, match="no finished back-up"):
        restore(target, tmp_path / "second")
    monkeypatch.setattr(folders, "copy_file", copy_file)
    copied = {path.name for path in target.rglob("*.parquet")}
    assert len(copied) == 10
    # Files that the next epoch does not name are not in the back-up.
    stray = target / "unfinished" / "store" / "matches" / "part-stray.parquet"
    stray.parent.mkdir(exist_ok=True)
    stray.write_bytes(b"stray")
    report = back_up(life.root, target)
    assert report.copied < report.size
    (generation,) = listed(target)
    on_disk = {path for path in store_of(generation).rglob("*") if path.is_file()}
    assert on_disk == {store_of(generation) / path for path in generation.marks()}
    assert not list(damaged_files(generation.files, generation.marks()))
    assert all_prices(restored(target, tmp_path / "second")) == list(range(18))


def test_a_back_up_whose_pin_is_ignored_has_no_manifest(
    life: Life, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    life.begin()
    life.publish(5)
    life.engine.step()
    copy_file = durable.copy_file

    def copy(source: Path, path: Path) -> tuple[int, int]:
        for pin in (life.root / PINS).iterdir():
            pin.unlink()
        return copy_file(source, path)

    monkeypatch.setattr(folders, "copy_file", copy)
    with pytest.raises(BackupFailed, match="ignored the pin"):
        back_up(life.root, tmp_path / "target")
    assert listed(tmp_path / "target") == []


def test_ctrl_c_ends_a_back_up_without_a_manifest(
    life: Life, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    life.begin()
    life.publish(5)
    life.engine.step()

    def interrupt(source: Path, path: Path) -> tuple[int, int]:
        raise KeyboardInterrupt

    monkeypatch.setattr(folders, "copy_file", interrupt)
    assert run("backup", life.root, tmp_path / "target").exit_code == 130
    assert listed(tmp_path / "target") == [] and not list((life.root / PINS).iterdir())


def test_a_damaged_store_is_not_backed_up_silently(life: Life, tmp_path: Path) -> None:
    life.begin()
    life.publish(5)
    life.engine.step()
    stem = next(path for path in life.root.glob("stems/*/*.parquet"))
    flip(stem)
    done = run("backup", life.root, tmp_path / "target")
    assert done.exit_code == 1 and f"{stem} is damaged" in done.output
    stem.unlink()
    done = run("backup", life.root, tmp_path / "target")
    assert done.exit_code == 1 and f"{stem} is gone" in done.output
    assert listed(tmp_path / "target") == []


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def test_verify_copies_damaged_files_of_the_last_back_up_again(life: Life, tmp_path: Path) -> None:
    life.begin()
    life.publish(5)
    life.engine.step()
    target = tmp_path / "target"
    back_up(life.root, target)
    (first,) = listed(target)
    damaged = next(path for path in first.marks() if path.startswith("stems/") and "part" in path)
    flip(store_of(first) / damaged)
    unnoticed = back_up(life.root, target)
    assert list(damaged_files(unnoticed.generation.files, unnoticed.generation.marks()))
    done = run("backup", life.root, target, "--verify")
    assert done.exit_code == 0 and damaged in done.output
    newest = listed(target)[-1]
    assert not list(damaged_files(newest.files, newest.marks()))
    with pytest.raises(BackupFailed, match="damaged"):
        restore(Path(first.place), tmp_path / "second")
    assert all_prices(restored(target, tmp_path / "third")) == list(range(5))


def test_old_back_ups_are_removed(
    life: Life, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    life.begin()
    target, begun = tmp_path / "target", now_micros()
    from psoup.store.backup import making

    for hours in range(4):
        life.publish(1)
        monkeypatch.setattr(making, "now_micros", lambda hours=hours: begun + hours * HOUR)
        report = back_up(life.root, target, BackupOptions(keep=2 * HOUR))
    assert report.dropped == 1
    assert [generation.name[:6] for generation in listed(target)] == [
        "000002",
        "000003",
        "000004",
    ]
    monkeypatch.setattr(making, "now_micros", lambda: begun + 99 * HOUR)
    back_up(life.root, target, BackupOptions(keep=2 * HOUR))
    (newest,) = listed(target)
    assert newest.name.startswith("000005"), "numbers are not used again"
    assert sorted(path.name for path in target.iterdir()) == [newest.name, "backup.lock"]
    assert all_prices(restored(target, tmp_path / "second")) == list(range(4))


def test_targets_that_are_refused(life: Life, tmp_path: Path) -> None:
    life.begin()
    done = run("backup", life.root, "https://bucket/store")
    assert done.exit_code == 2 and "s3://" in done.output
    done = run("backup", life.root, life.root / "backups")
    assert done.exit_code == 1 and "inside of the store" in done.output
    assert not (life.root / "backups").exists()
    done = run("backup", tmp_path / "nothing", tmp_path / "target")
    assert done.exit_code == 1 and "is not a store" in done.output
    full = tmp_path / "full"
    full.mkdir()
    (full / "letter.txt").write_text("dear")
    done = run("backup", life.root, full)
    assert done.exit_code == 1 and "letter.txt" in done.output
    stranger = Life(tmp_path / "other")
    stranger.close()
    back_up(stranger.root, tmp_path / "target")
    done = run("backup", life.root, tmp_path / "target")
    assert done.exit_code == 1 and "another store" in done.output
    with locked_folder(tmp_path / "target", Store(stranger.root).id):
        done = run("backup", stranger.root, tmp_path / "target")
    assert done.exit_code == 1 and "in use" in done.output
    assert len(listed(tmp_path / "target")) == 1


def test_the_token_key_is_left_out_unless_asked_for(life: Life, tmp_path: Path) -> None:
    assert "token.key" not in back_up(life.root, tmp_path / "a").generation.marks()
    done = run("backup", life.root, tmp_path / "b", "--with-token-key")
    assert done.exit_code == 0
    folder = restored(tmp_path / "b", tmp_path / "second")
    assert (folder / "store" / "token.key").read_bytes() == (life.root / "token.key").read_bytes()
    assert (folder / "store" / "token.key").stat().st_mode & 0o077 == 0
