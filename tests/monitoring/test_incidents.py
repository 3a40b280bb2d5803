"""The runbook, by real incidents of a server.

Each test makes an incident and sees the alert's expression hold in a real Prometheus. It runs the
commands under the alert's heading, does what the page says, and sees the expression end.
"""

from __future__ import annotations

import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from client_sdk import Client, PsoupError
from psoup.write.timepiece import VARIABLE
from tests.damage import flip_in_column
from tests.support.authority import Authority
from tests.support.incidents import Incident

pytestmark = [pytest.mark.long, pytest.mark.process]

_DAY = 24 * 3600


def numbers(count: int) -> pa.Table:
    return pa.table({"a": pa.array(range(count), pa.int64())})


def fill(client: Client, count: int = 100) -> None:
    client.define("CREATE STREAM s (a BIGINT)")
    client.publish("s", numbers(count))


@contextmanager
def repeating(call: Callable[[], object], seconds: float = 0.1) -> Iterator[list[str]]:
    """Make a call again and again in a thread; give the reasons of its failures."""
    reasons: list[str] = []
    stopping = threading.Event()

    def run() -> None:
        while not stopping.is_set():
            try:
                call()
            except PsoupError as error:
                reasons.append(error.reason)
            stopping.wait(seconds)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield reasons
    finally:
        stopping.set()
        thread.join()


def test_down(incident: Incident) -> None:
    incident.start_server()
    with incident.client() as client:
        fill(client)
    incident.wait_for_end("PsoupDown")
    incident.server.kill()
    incident.wait_for("PsoupDown")
    incident.look("Down")
    incident.start_server()
    incident.wait_for_end("PsoupDown")
    with incident.client() as client:
        assert len(list(client.ask("SELECT a FROM s"))) == 100


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, of 250 MB."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=250m", "tmpfs", str(place)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("only root may mount a small disk")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def test_disk_full(incident: Incident, small_disk: Path) -> None:
    incident.place_store(small_disk / "store")
    incident.start_server()
    with incident.client() as client:
        fill(client)
        incident.wait_for_end("PsoupDiskFull")
        # Another program fills the disk.
        filler = small_disk / "other"
        with suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(1 << 20))
        with pytest.raises(PsoupError) as caught:
            client.publish("s", numbers(100_000))
        assert caught.value.reason == "DISK_FULL"
        incident.wait_for("PsoupDiskFull")
        # It holds for as long as the disk is full, also if nothing is written to it any more.
        incident.prometheus.wait_for("deriv(psoup_store_free_bytes[5s]) == 0")
        incident.wait_for("PsoupDiskFull")
        incident.look("Disk full")
        assert len(list(client.ask("SELECT a FROM s"))) == 100
        filler.unlink()
        incident.wait_for_end("PsoupDiskFull")
        client.publish("s", numbers(100))
        assert len(list(client.ask("SELECT a FROM s"))) == 200


def test_rows_lost(incident: Incident, tmp_path: Path) -> None:
    incident.start_server()
    with incident.client() as client:
        fill(client)
    incident.server.kill()
    backup = tmp_path / "backup"
    shutil.copytree(incident.store / "log", backup)
    damaged = max((incident.store / "log").glob("*.parquet"), key=lambda file: file.stat().st_size)
    flip_in_column(damaged, "payload")
    incident.start_server()
    incident.wait_for("PsoupRowsLost")
    incident.look("Rows lost")
    with incident.client() as client, pytest.raises(PsoupError) as caught:
        list(client.ask("SELECT a FROM s"))
    assert caught.value.reason == "CORRUPT_STORE"
    shutil.copy(backup / damaged.name, damaged)
    incident.server.stop()
    incident.start_server()
    incident.wait_for_end("PsoupRowsLost")
    with incident.client() as client:
        assert len(list(client.ask("SELECT a FROM s"))) == 100


def test_clock(incident: Incident, tmp_path: Path) -> None:
    def set_clock(name: str, ahead: float) -> dict[str, str]:
        # Replaced, never written into: a server may be reading it.
        fresh = tmp_path / f".{name}"
        fresh.write_text(f"{ahead}\n")
        return {VARIABLE: str(fresh.rename(tmp_path / name))}

    incident.processes.environment = set_clock("right", 0)
    right = incident.processes.start_server()
    with Client(right) as client:
        fill(client)
    incident.processes.environment = set_clock("wrong", 0)
    incident.start_server()
    incident.wait_for_end("PsoupClock")
    set_clock("wrong", _DAY)
    incident.wait_for("PsoupClock")
    incident.look("Clock")
    with incident.client(timeout=5) as client, pytest.raises(PsoupError) as caught:
        client.publish("s", numbers(1))
    assert caught.value.reason == "CLOCK_AHEAD"
    with Client(right) as client:
        client.publish("s", numbers(1))
    set_clock("wrong", 0)
    incident.wait_for_end("PsoupClock")
    with incident.client() as client:
        client.publish("s", numbers(1))


def test_refusing(incident: Incident) -> None:
    incident.start_server()
    incident.names["TENANT"] = "greedy"
    with incident.client(tenant="greedy") as greedy:
        fill(greedy)
        greedy.set_quota({"registrations": 5})
        counter = iter(range(1_000_000))
        incident.wait_for_end("PsoupRefusing")
        text = "SELECT a FROM s WHERE a > {}"

        def register() -> None:
            number = next(counter)
            greedy.register(text.format(number), key=f"k{number}")

        with repeating(register) as reasons:
            incident.wait_for("PsoupRefusing")
            incident.look("Refusing")
            assert set(reasons) == {"QUOTA_EXCEEDED"}
            greedy.set_quota({"registrations": 100_000})
            incident.wait_for_end("PsoupRefusing")


def test_errors(incident: Incident, tmp_path: Path) -> None:
    incident.start_server()
    with incident.client(timeout=2) as client:
        fill(client)
        with repeating(lambda: client.publish("s", numbers(1))) as reasons:
            incident.wait_for_end("PsoupErrors")
            # As if the file system was unmounted.
            incident.store.rename(tmp_path / "away")
            incident.wait_for("PsoupErrors")
            incident.look("Errors")
            assert "STORAGE_FAILED" in reasons
            shutil.rmtree(incident.store, ignore_errors=True)
            (tmp_path / "away").rename(incident.store)
            incident.wait_for_end("PsoupErrors")


def test_slow(incident: Incident) -> None:
    """Ten callers ask for many distinct values at once; then the text is replaced."""
    incident.start_server("--compute-rows", "100000000")
    incident.names["KEY"] = "board"
    with incident.client() as client, ExitStack() as callers:
        fill(client, 1_000_000)
        text = "SELECT DISTINCT a % 300000 AS b FROM s ORDER BY b LIMIT 5"
        client.register(text, key="board")
        incident.wait_for_end("PsoupSlow")
        for _ in range(10):
            callers.enter_context(repeating(lambda: list(client.invoke("board")), 0))
        incident.wait_for("PsoupSlow")
        incident.look("Slow")
        client.register("SELECT a FROM s WHERE a < 10", key="board", replace=True)
        incident.wait_for_end("PsoupSlow")


def test_certificate(incident: Incident, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    ending = authority.server(validity=timedelta(days=3))
    incident.start_server("--tls-cert", str(ending.cert), "--tls-key", str(ending.key))
    incident.names |= {"server.pem": str(ending.cert)}
    incident.environment["PSOUP_TLS_CA"] = str(authority.ca)
    incident.wait_for("PsoupCertificate")
    incident.look("Certificate")
    fresh = authority.server("fresh", timedelta(days=90))
    # Files that don't belong together are not used, and the alert says so.
    shutil.copy(fresh.cert, ending.cert)
    incident.look("Certificate")
    incident.wait_for("PsoupCertificate")
    shutil.copy(fresh.key, ending.key)
    incident.wait_for_end("PsoupCertificate")
    incident.look("Certificate")
