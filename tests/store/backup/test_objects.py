"""Back-ups in a bucket of a real S3-compatible server: as those in a folder, and its failures."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from datastem.instants import HOUR, from_micros
from psoup.store.backup import making
from psoup.store.backup.address import BucketAddress
from psoup.store.backup.copying import FileMark
from psoup.store.backup.generations import now_micros
from psoup.store.backup.making import BackupOptions, back_up
from psoup.store.backup.pins import PINS
from psoup.store.backup.restoring import restore
from psoup.store.backup.targets import read_target
from psoup.store.errors import BackupFailed
from tests.conftest import ROOT
from tests.store.backup.life import Life, all_prices, answers
from tests.store.backup.test_backup import run
from tests.support.object_store import CuttingProxy, ObjectStore, running_object_store

pytest.importorskip("obstore", reason="pip install 'psoup[s3]'")
from psoup.store.backup import bucket as buckets  # noqa: E402
from psoup.store.backup import lease as leases  # noqa: E402
from psoup.store.backup import objects  # noqa: E402
from psoup.store.backup.bucket import Bucket, ObjectMissing, ObjectTaken  # noqa: E402
from psoup.store.backup.lease import Lease, LeaseTimes  # noqa: E402

pytestmark = pytest.mark.process

SECRET = "wJalrXUtnFEMIbPxRfiCYEXAMPLEKEY"


@pytest.fixture(scope="module")
def server() -> Iterator[ObjectStore]:
    with running_object_store() as server:
        yield server


class ClockWithoutWaits:
    """The clock of leases: a sleep takes no time, and the clock goes on by that much."""

    def __init__(self) -> None:
        self.skipped = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self.skipped

    def sleep(self, seconds: float) -> None:
        self.skipped += seconds


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setattr(buckets, "_RETRIES", 1)
    monkeypatch.setattr(buckets, "_RETRY_SECONDS", 5)
    monkeypatch.setattr(leases, "time", ClockWithoutWaits())


@pytest.fixture
def target(server: ObjectStore, request: pytest.FixtureRequest) -> str:
    return server.address("all/" + request.node.name.replace("[", "-").strip("]"))


def bucket_of(target: str) -> Bucket:
    return Bucket(BucketAddress.parse(target))


def objects_of(target: str) -> set[str]:
    """Return the names of the objects of all files."""
    return set(bucket_of(target).names("files/"))


def named(target: str) -> set[str]:
    """Return the names of the objects that manifests have."""
    with read_target(BucketAddress.parse(target)) as generations:
        return {
            objects.object_name(path, mark)
            for generation in generations
            for path, mark in generation.marks().items()
        }


def restored_prices(target: str, folder: Path, *options: str) -> list[int]:
    done = run("restore", target, folder / "store", *options)
    assert done.exit_code == 0, done.output
    return all_prices(folder)


def test_a_restored_store_answers_as_the_original(life: Life, tmp_path: Path, target: str) -> None:
    life.begin()
    life.publish(12)
    life.engine.step()
    points = []
    for _ in range(3):
        points.append((life.store.log.latest_version(), life.inside.clock, life.prices))
        life.publish(1)
    done = run("backup", life.root, target, "--verify", "--with-token-key")
    assert done.exit_code == 0, done.output
    # The next one uploads only what is new.
    life.publish(1)
    report = back_up(life.root, BucketAddress.parse(target), BackupOptions(with_token_key=True))
    assert 0 < report.copied < report.size / 2
    assert named(target) == objects_of(target)
    done = run("restore", target, tmp_path / "second" / "store")
    assert done.exit_code == 0, done.output
    clock = life.inside.clock
    life.close()
    assert answers(tmp_path / "second", clock) == answers(life.folder, clock)
    key = tmp_path / "second" / "store" / "token.key"
    assert key.read_bytes() == (life.root / "token.key").read_bytes()
    assert key.stat().st_mode & 0o077 == 0
    assert restored_prices(target, tmp_path / "third") == list(range(16))
    for number, (version, clock, prices) in enumerate(points):
        at = str(version) if number % 2 else from_micros(clock).isoformat()
        folder = tmp_path / f"at {number}"
        assert restored_prices(target, folder, "--at", at) == list(range(prices))
    done = run("restore", target, tmp_path / "second" / "store")
    assert done.exit_code == 1 and "is not empty" in done.output


def test_large_files_are_uploaded_in_parts(tmp_path: Path, target: str) -> None:
    content = Random(0).randbytes(3 * buckets.PART_BYTES + 17)
    mark, source, bucket = FileMark.of(content), tmp_path / "large", bucket_of(target)
    source.write_bytes(content)
    bucket.upload("files/large", source, mark)
    assert bucket.mark_of("files/large") == mark
    assert bucket.download("files/large", tmp_path / "copy") == mark
    assert (tmp_path / "copy").read_bytes() == content
    for size, crc in ((mark.size, mark.crc ^ 1), (mark.size + 1, mark.crc), (9 << 20, mark.crc)):
        with pytest.raises(BackupFailed, match="damaged"):
            bucket.upload("files/other", source, FileMark(size, crc))
        with pytest.raises(ObjectMissing):
            bucket.get("files/other")


def test_verify_uploads_damaged_objects_again(life: Life, tmp_path: Path, target: str) -> None:
    life.begin()
    life.publish(5)
    life.engine.step()
    back_up(life.root, BucketAddress.parse(target))
    damaged, gone = sorted(name for name in objects_of(target) if "stems/" in name)[:2]
    bucket_of(target).put(damaged, b"something else")
    bucket_of(target).remove([gone])
    done = run("restore", target, tmp_path / "second")
    assert done.exit_code == 1 and ("damaged" in done.output or "is gone" in done.output)
    done = run("backup", life.root, target, "--verify")
    assert done.exit_code == 0 and "damaged in the back-up before, copied again" in done.output
    assert restored_prices(target, tmp_path / "third") == list(range(5))


def test_old_back_ups_are_removed(
    life: Life, tmp_path: Path, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    life.begin()
    place, begun = BucketAddress.parse(target), now_micros()
    # Left by a back-up that was killed.
    bucket_of(target).put("files/matches/part-stray.parquet.00000000-5", b"stray")
    for hours in range(4):
        life.publish(1)
        life.engine.step()
        life.engine.trim()
        monkeypatch.setattr(making, "now_micros", lambda hours=hours: begun + hours * HOUR)
        report = back_up(life.root, place, BackupOptions(keep=2 * HOUR))
    assert report.dropped == 1
    with read_target(place) as generations:
        assert [copy.name[:6] for copy in generations] == ["000002", "000003", "000004"]
    assert named(target) == objects_of(target)
    assert restored_prices(target, tmp_path / "second") == list(range(4))
    # What a damaged manifest names is unknown, so nothing is removed.
    before = objects_of(target)
    (name,) = [name for name in bucket_of(target).folders() if name.startswith("000003")]
    name += "/manifest.jsonl"
    content, _ = bucket_of(target).get(name)
    bucket_of(target).put(name, content[:-20])
    done = run("backup", life.root, target, "--keep", "2d")
    assert done.exit_code == 1 and "the back-up was made, but old ones" in done.output
    assert before <= objects_of(target)
    assert restored_prices(target, tmp_path / "third") == list(range(4))


@pytest.mark.parametrize("budget", [3_000, 40_000, 90_000])
def test_a_cut_connection_leaves_no_manifest_and_the_next_goes_on(
    life: Life, tmp_path: Path, server: ObjectStore, target: str, budget: int
) -> None:
    life.begin()
    for _ in range(5):
        life.publish(4)
        life.engine.step()
    proxy = CuttingProxy(server.port, budget)
    prefix = BucketAddress.parse(target).prefix
    done = run("backup", life.root, server.address(prefix, port=proxy.port))
    proxy.close()
    assert done.exit_code == 1 and "no back-up was made" in done.output, done.output
    assert "run the command again" in done.output and SECRET not in done.output
    assert not list((life.root / PINS).iterdir())
    with read_target(BucketAddress.parse(target)) as generations:
        assert generations == []
    uploaded = objects_of(target)
    report = back_up(life.root, BucketAddress.parse(target))
    assert (report.copied < report.size) == bool(uploaded) and uploaded <= objects_of(target)
    assert restored_prices(target, tmp_path / "second") == list(range(20))


def test_a_back_up_after_a_killed_one_goes_on(
    life: Life, tmp_path: Path, server: ObjectStore, target: str
) -> None:
    life.begin()
    for _ in range(5):
        life.publish(4)
        life.engine.step()
    proxy = CuttingProxy(server.port, 60_000, stall=True)
    prefix = BucketAddress.parse(target).prefix
    command = [sys.executable, "-m", "psoup.cli", "backup", str(life.root)]
    process = subprocess.Popen([*command, server.address(prefix, port=proxy.port)], cwd=ROOT)
    assert proxy.is_spent.wait(60)
    process.send_signal(signal.SIGKILL)
    process.wait()
    proxy.close()
    uploaded = objects_of(target)
    assert uploaded and not named(target)
    # It takes over the lease of the killed one.
    report = back_up(life.root, BucketAddress.parse(target))
    assert report.copied < report.size and uploaded <= objects_of(target)
    assert restored_prices(target, tmp_path / "second") == list(range(20))


def test_one_back_up_at_a_time(life: Life, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket = bucket_of(target)
    # It waits until the other lease is renewed, however long that takes.
    monkeypatch.setattr(objects, "LeaseTimes", lambda: LeaseTimes(0.05, 1e9))
    with Lease(bucket, LeaseTimes(0.05, 1e9)) as first:
        with pytest.raises(BackupFailed, match="in use"):
            back_up(life.root, BucketAddress.parse(target))
        first.check()
    with pytest.raises(ObjectMissing):
        bucket.get("lease")
    # The first is not renewed for longer than a lease lasts, so the next owner takes it over.
    with Lease(bucket, LeaseTimes()) as late, Lease(bucket, LeaseTimes()) as next_owner:
        with pytest.raises(BackupFailed, match="renewed"):
            late.check()
        late.__exit__(None, None, None)
        next_owner.check()
        assert bucket.get("lease")
    with pytest.raises(ObjectMissing):
        bucket.get("lease")


def test_objects_are_created_once(target: str) -> None:
    bucket = bucket_of(target)
    version = bucket.create("x", b"1")
    assert bucket.create("x", b"1") == version, "an answer that was lost"
    with pytest.raises(ObjectTaken):
        bucket.create("x", b"2")
    newer = bucket.replace("x", b"2", version)
    assert bucket.replace("x", b"2", version) == newer
    with pytest.raises(ObjectTaken):
        bucket.replace("x", b"3", version)
    bucket.remove(["x", "x", "never"])
    with pytest.raises(ObjectTaken):
        bucket.replace("x", b"4", newer)


def test_what_is_wrong_is_said(
    life: Life, tmp_path: Path, server: ObjectStore, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    life.begin()

    def refused(place: str, problem: str, code: int = 1) -> None:
        commands = (("backup", life.root, place), ("restore", place, tmp_path / "never"))
        for command in commands:
            done = run(*command)
            assert done.exit_code == code and problem in done.output, done.output
            assert SECRET not in done.output and "Traceback" not in done.output
        assert not (tmp_path / "never").exists()

    refused(server.address("a", bucket="nothing"), "there is no bucket nothing")
    refused(server.address("a", port=1), "can't be reached")
    server.refuse_all()
    refused(target, "refused the credentials")
    server.allow_all()
    refused(f"s3://me:{SECRET}@bucket/prefix", "credentials do not belong", 2)
    refused("s3://bucket", "s3://BUCKET/PREFIX", 2)
    refused("s3://bucket/../x", "must not have", 2)
    refused(f"s3://bucket/x?key={SECRET}", "unknown option 'key'", 2)
    refused("s3://bucket/x?endpoint=127.0.0.1", "is not a URL", 2)
    refused("gs://bucket/x", "s3://BUCKET/PREFIX", 2)
    done = run("restore", target, tmp_path / "never")
    assert done.exit_code == 1 and "no finished back-up" in done.output
    # A file with credentials.
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    file = tmp_path / "credentials"
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    file.write_text(f"aws_secret_access_key = {SECRET}\n")
    file.chmod(0o644)
    refused(target, "others may read")
    file.chmod(0o600)
    refused(target, "is not a file of credentials")
    file.write_text(f"[default]\naws_secret_access_key = {SECRET}\n")
    refused(target, "aws_access_key_id")
    file.write_text(f"[x]\naws_access_key_id = A\naws_secret_access_key = {SECRET}\n")
    refused(target, "lacks the profile 'default'")
    monkeypatch.setenv("AWS_PROFILE", "x")
    assert run("backup", life.root, target).exit_code == 0


def test_back_ups_of_another_store_are_kept_apart(life: Life, tmp_path: Path, target: str) -> None:
    back_up(life.root, BucketAddress.parse(target))
    stranger = Life(tmp_path / "other")
    with pytest.raises(BackupFailed, match="another store"):
        back_up(stranger.root, BucketAddress.parse(target))
    stranger.close()
    restore(BucketAddress.parse(target), tmp_path / "second")
