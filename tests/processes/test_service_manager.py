"""What processes report to systemd, received by a real socket of datagrams."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from psoup.service_manager import ServiceManager
from psoup.store import Store
from tests.engine.test_process import spawn
from tests.support.server.process import ServerProcess
from tests.support.system.processes import Process

pytestmark = pytest.mark.process

_SECONDS = 60.0
_QUIET_SECONDS = 0.5
_WATCHDOG_USEC = 100_000
_GROUP_WATCHDOG_USEC = 8_000_000


class NotifySocket:
    """The end of the service manager."""

    def __init__(self, address: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(address)
        self._socket.settimeout(_SECONDS)

    def next(self, but: str = "") -> str:
        """Return the next report that is not `but`."""
        while (report := self._socket.recv(4096).decode()) == but:
            pass
        return report

    def is_quiet(self) -> bool:
        """Return whether nothing comes for a while."""
        self._socket.settimeout(_QUIET_SECONDS)
        try:
            self._socket.recv(4096)
        except TimeoutError:
            return True
        finally:
            self._socket.settimeout(_SECONDS)
        return False

    def drain(self) -> None:
        while not self.is_quiet():
            pass

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[NotifySocket]:
    address = str(tmp_path / "notify")
    manager = NotifySocket(address)
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    monkeypatch.setenv("WATCHDOG_USEC", str(_WATCHDOG_USEC))
    monkeypatch.delenv("WATCHDOG_PID", raising=False)
    yield manager
    manager.close()


def test_a_server_reports_from_ready_to_its_end(manager: NotifySocket, tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "store")
    try:
        assert [manager.next() for _ in range(4)] == ["READY=1", *3 * ["WATCHDOG=1"]]
        os.kill(server.pid, signal.SIGSTOP)
        manager.drain()
        assert manager.is_quiet()  # a loop that stands still reports nothing
        os.kill(server.pid, signal.SIGCONT)
        assert manager.next() == "WATCHDOG=1"
        server.send_signal()
        assert manager.next(but="WATCHDOG=1") == "STOPPING=1"
    finally:
        server.stop()


def test_a_group_reports_once_for_all_of_its_servers(manager: NotifySocket, tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "store", "--servers", "2")
    try:
        assert manager.next() == "READY=1"
        assert manager.next() == "WATCHDOG=1"
        server.send_signal()
        assert manager.next(but="WATCHDOG=1") == "STOPPING=1"
    finally:
        server.stop()
    assert manager.is_quiet()


def test_sources_report_although_their_store_is_away(manager: NotifySocket, tmp_path: Path) -> None:
    settings = tmp_path / "sources.toml"
    settings.write_text(
        '[defaults]\ntarget = "127.0.0.1:1"\n[sources.f]\nfiles = "*"\nstream = "s"\n'
    )
    process = Process(["-m", "psoup.cli", "source", "run", str(settings)], tmp_path / "log")
    try:
        assert [manager.next() for _ in range(3)] == ["READY=1", *2 * ["WATCHDOG=1"]]
        os.kill(process.pid, signal.SIGTERM)
        assert manager.next(but="WATCHDOG=1") == "STOPPING=1"
        assert process.wait() == 143
    finally:
        if process.alive:
            process.kill()


def test_a_server_of_a_group_that_hangs_is_started_again(
    manager: NotifySocket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Long enough that a busy machine delays no report for that long.
    monkeypatch.setenv("WATCHDOG_USEC", str(_GROUP_WATCHDOG_USEC))
    server = ServerProcess(tmp_path / "store", "--servers", "2")
    try:
        assert manager.next() == "READY=1"
        children = Path(f"/proc/{server.pid}/task/{server.pid}/children")
        hung, _ = children.read_text().split()
        os.kill(int(hung), signal.SIGSTOP)
        # The group itself is not in trouble: its parent goes on to report.
        while hung in (pids := children.read_text().split()) or len(pids) < 2:
            assert manager.next() == "WATCHDOG=1"
        assert "does not report any more and is killed" in server.errors.read_text()
    finally:
        server.stop()


def test_an_abstract_address_is_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"psoup-test-{os.getpid()}"
    manager = NotifySocket(f"\0{name}")
    monkeypatch.setenv("NOTIFY_SOCKET", f"@{name}")
    ServiceManager.of_environment().ready()
    assert manager.next() == "READY=1"
    assert "NOTIFY_SOCKET" not in os.environ
    manager.close()


@pytest.mark.parametrize(
    ("microseconds", "pid", "seconds"),
    [
        ("2000000", "", 1.0),
        ("2000000", "own", 1.0),
        ("2000000", "1", None),
        ("", "", None),
        ("soon", "", None),
    ],
)
def test_the_watchdog_is_for_the_process_it_names(
    monkeypatch: pytest.MonkeyPatch, microseconds: str, pid: str, seconds: float | None
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", microseconds)
    # The own id is no parameter: the names of tests have to be the same in all processes of a run.
    monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()) if pid == "own" else pid)
    assert ServiceManager.of_environment().beat_seconds == seconds


def test_a_manager_that_is_gone_stops_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "gone"))
    ServiceManager.of_environment().ready()
    assert "could not report READY=1" in caplog.text
    ServiceManager().ready()


@pytest.mark.long
@pytest.mark.spark
def test_an_engine_reports_from_ready_to_its_end(manager: NotifySocket, tmp_path: Path) -> None:
    output = tmp_path / "engine.log"
    process = spawn(Store.open(tmp_path / "store", create=True), output)
    try:
        assert manager.next() == "READY=1", output.read_text()
        assert [manager.next() for _ in range(3)] == 3 * ["WATCHDOG=1"]
        process.send_signal(signal.SIGTERM)
        assert manager.next(but="WATCHDOG=1") == "STOPPING=1"
        assert process.wait(_SECONDS) == 0
    finally:
        process.kill()
        process.wait()
