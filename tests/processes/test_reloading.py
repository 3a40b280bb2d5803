"""SIGHUP: what a running server and engine read again, and what needs a restart."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from psoup.store import Store
from tests.engine.test_process import ROOT, spawn
from tests.support.authority import Authority
from tests.support.server.process import ServerProcess

pytestmark = pytest.mark.process

_SECONDS = 60.0
_READ = "the configuration was read again"


def wait_for(log: Path, text: str, count: int = 1) -> str:
    """Return the log once it has the text so often."""
    deadline = time.monotonic() + _SECONDS
    while (content := log.read_text()).count(text) < count:
        assert time.monotonic() < deadline, content
        time.sleep(0.02)
    return content


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "psoup.toml"
    file.write_text('[log]\nlog-calls = "none"\n[server]\nmemory = "1GB"\n')
    file.chmod(0o600)
    monkeypatch.setenv("PSOUP_CONFIG", str(file))
    return file


def test_the_log_changes_at_once_and_the_rest_needs_a_restart(file: Path, tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "store")
    try:
        server.define("CREATE STREAM s (a BIGINT)")
        file.write_text('[log]\nlog = "json"\nlog-calls = "all"\n[server]\nmemory = "2GB"\n')
        server.send_signal(signal.SIGHUP)
        content = wait_for(server.errors, _READ)
        assert "memory has changed, and needs a restart" in content
        assert '"event": "reloaded"' in content and "Define" not in content
        server.define("CREATE STREAM t (a BIGINT)")
        assert '"method": "Define"' in wait_for(server.errors, '"event": "call"')
        # A file that can't be used changes nothing, and is named.
        for number, bad in enumerate(("[log", '[log]\nlog = "xml"\n', "[serve]\n"), 1):
            file.write_text(bad)
            server.send_signal(signal.SIGHUP)
            wait_for(server.errors, '"event": "reload-failed"', number)
        server.define("CREATE STREAM u (a BIGINT)")
        wait_for(server.errors, '"event": "call"', 2)
    finally:
        assert server.stop() == 0


def test_a_group_reloads_all_of_its_servers(file: Path, tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "store", "--servers", "2")
    try:
        file.write_text('[server]\nmemory = "3GB"\n')
        server.send_signal(signal.SIGHUP)
        wait_for(server.errors, "memory has changed, and needs a restart", 3)
        content = wait_for(server.errors, _READ, 3)
        assert "server 1: " in content and "server 2: " in content
    finally:
        assert server.stop() == 0


def test_certificates_that_do_not_fit_are_reported_before_the_next_handshake(
    tmp_path: Path,
) -> None:
    pair = Authority(tmp_path).server()
    server = ServerProcess(
        tmp_path / "store", "--tls-cert", str(pair.cert), "--tls-key", str(pair.key)
    )
    try:
        pair.cert.write_text("no certificate")
        server.send_signal(signal.SIGHUP)
        wait_for(server.errors, "the TLS certificate stays as it was")
    finally:
        server.stop()


def test_a_terminal_that_closes_ends_the_server(tmp_path: Path) -> None:
    ours, terminal = pty.openpty()
    command = [sys.executable, "-m", "psoup.server", "--store", str(tmp_path / "s"), "--port", "0"]
    process = subprocess.Popen(
        command, cwd=ROOT, stdin=terminal, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    try:
        assert process.stdout is not None and process.stdout.readline().startswith(b"server ready")
        process.send_signal(signal.SIGHUP)
        assert process.wait(_SECONDS) == 0
    finally:
        process.kill()
        process.communicate()
        os.close(ours)
        os.close(terminal)


@pytest.mark.long
@pytest.mark.spark
def test_an_engine_reloads_its_log(file: Path, tmp_path: Path) -> None:
    output = tmp_path / "engine.log"
    process = spawn(Store.open(tmp_path / "store", create=True), output)
    try:
        wait_for(output, "engine ready")
        file.write_text('[log]\nlog = "json"\n[engine]\npoll-ms = 500\n')
        process.send_signal(signal.SIGHUP)
        content = wait_for(output, '"event": "reloaded"')
        assert "poll-ms has changed, and needs a restart" in content
        process.send_signal(signal.SIGTERM)
        assert process.wait(_SECONDS) == 0
    finally:
        process.kill()
        process.wait()
