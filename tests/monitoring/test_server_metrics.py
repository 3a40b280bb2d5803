"""The metrics and the health of a real server."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import grpc
import pyarrow as pa
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from client_sdk import Client, PsoupError
from client_sdk.copies import Copies
from psoup.server.metrics.recording import REFUSALS
from tests.support.monitoring import Scrape, fetch, readiness, scrape_until
from tests.support.server.process import ServerProcess

pytestmark = pytest.mark.process

LISTEN = ("--metrics", "127.0.0.1:0")


def address_of(server: ServerProcess) -> str:
    return server.read_line().removeprefix("metrics ready on ")


@pytest.fixture
def server(tmp_path: Path):
    server = ServerProcess(tmp_path / "store", *LISTEN)
    yield server
    server.stop()


def numbers(count: int) -> pa.Table:
    return pa.table({"a": pa.array(range(count), pa.int64())})


def test_calls_rows_and_syncs_are_counted(server: ServerProcess, tmp_path: Path) -> None:
    address = address_of(server)
    with Client(server.address) as client:
        client.define("CREATE STREAM s (a BIGINT)")
        client.publish("s", numbers(100))
        client.register("SELECT a FROM s WHERE a > 5", key="k")
        for _ in range(3):
            assert len(list(client.invoke("k"))) == 94
        with pytest.raises(PsoupError):
            client.ask("SELECT nothing FROM s")
        with Copies(tmp_path / "phone.db") as copies:
            copies.keep("k", "SELECT a FROM s")
            for _ in range(2):
                copies.sync(client)
    scrape = scrape_until(address, "psoup_call_duration_seconds_count", 3, method="Invoke")
    calls = "psoup_call_duration_seconds_count"
    assert scrape.value(calls, method="Publish", code="OK") == 1
    assert scrape.value(calls, method="Ask", code="INVALID_ARGUMENT") == 1
    assert scrape.value("psoup_calls_total", method="Invoke", door="grpc") == 3
    assert scrape.value("psoup_call_queue_seconds_count", method="Invoke") == 3
    assert scrape.value("psoup_published_rows_total", tenant="main") == 100
    assert scrape.value("psoup_computed_rows_total", tenant="main") == 100
    assert scrape.value("psoup_stream_rows", tenant="main", stream="s") == 100
    assert scrape.value("psoup_behind_rows") == 100
    assert scrape.value("psoup_engine_up") == 0
    assert scrape.value("psoup_epoch_age_seconds") is None
    assert scrape.value("psoup_sync_items_total", mode="whole") == 1
    assert scrape.value("psoup_sync_items_total") == 2
    appends = scrape.value("psoup_append_duration_seconds_count")
    assert appends is not None and appends >= 3
    assert {scrape.value("psoup_refused_total", reason=reason) for reason in REFUSALS} == {0}


def test_refusals_are_counted_by_reason(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "store", *LISTEN, "--compute-rows", "10")
    try:
        address = address_of(server)
        server.define("CREATE STREAM s (a BIGINT)")
        server.publish("s", numbers(100))
        handle = server.register("SELECT a FROM s WHERE a > 5").handle
        with pytest.raises(grpc.RpcError):
            server.invoke(handle)
        scrape_until(address, "psoup_refused_total", 1, reason="TOO_MUCH_WORK")
    finally:
        server.stop()


def test_names_of_tenants_and_streams_are_bounded(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "store", *LISTEN, "--metric-names", "2")
    try:
        address = address_of(server)
        for number in range(5):
            tenant = server.of(f"tenant-{number}")
            tenant.define("CREATE STREAM s (a BIGINT)")
            tenant.publish("s", numbers(10))
        scrape = scrape_until(address, "psoup_published_rows_total", 50)
        tenants = set(re.findall(r'psoup_published_rows_total{tenant="([^"]*)"}', scrape.text))
        assert len(tenants) == 3 and "other" in tenants
        assert scrape.value("psoup_published_rows_total", tenant="other") == 30
        assert scrape.value("psoup_stream_rows", tenant="other", stream="other") == 30
    finally:
        server.stop()


def test_it_is_ready_until_it_stops(tmp_path: Path) -> None:
    """While it drains it takes calls, and says that it is about to stop."""
    server = ServerProcess(tmp_path / "store", *LISTEN, "--drain-delay", "600")
    address = address_of(server)
    health = health_pb2_grpc.HealthStub(server.channel)

    def serves(name: str) -> bool:
        answer = health.Check(health_pb2.HealthCheckRequest(service=name))
        return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)

    assert readiness(address) == (200, {"ready": True, "missing": []})
    assert fetch(address, "/livez")[0] == 200
    assert serves("") and serves("psoup.v1.Psoup")
    server.send_signal()
    while serves("psoup.v1.Psoup"):
        time.sleep(0.05)
    assert readiness(address) == (503, {"ready": False, "missing": ["the server is stopping"]})
    assert fetch(address, "/livez")[0] == 200 and serves("")
    server.define("CREATE STREAM s (a BIGINT)")
    os.kill(server.pid, signal.SIGKILL)
    server.wait()


@pytest.mark.long  # it waits for the ten seconds that a folder may be away
def test_a_folder_that_is_gone_makes_it_unready(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "store", *LISTEN)
    try:
        address = address_of(server)
        away = tmp_path / "away"
        (tmp_path / "store").rename(away)
        while readiness(address)[0] == 200:
            time.sleep(0.2)
        assert readiness(address)[1]["missing"] == ["the store's folder can't be read"]
        assert fetch(address, "/livez")[0] == 200
        shutil.rmtree(tmp_path / "store", ignore_errors=True)
        away.rename(tmp_path / "store")
        while readiness(address)[0] != 200:
            time.sleep(0.2)
    finally:
        server.stop()


def test_a_taken_port_and_an_open_address_are_refused(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "psoup.server", "--store", str(tmp_path / "store")]
    done = subprocess.run(
        [*command, "--metrics", "0.0.0.0:9181"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2 and "--metrics-token-file" in done.stderr


def test_a_server_without_metrics_needs_no_package() -> None:
    code = (
        "import sys; sys.modules['prometheus_client'] = None; "
        "import psoup.server.main, psoup.engine.process"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_metric_has_its_help(server: ServerProcess) -> None:
    scrape = Scrape(address_of(server))
    names = [family.name for family in scrape.families if family.name.startswith("psoup_")]
    assert len(names) > 30 and len(set(names)) == len(names)
    assert all(family.documentation for family in scrape.families)


def test_each_server_of_a_group_has_a_port_for_metrics(tmp_path: Path) -> None:
    first = free_pair()
    server = ServerProcess(tmp_path / "store", "--servers", "2", "--metrics", f"127.0.0.1:{first}")
    try:
        names = set()
        for port in (first, first + 1):
            scrape = scrape_until(f"127.0.0.1:{port}", "psoup_build_info", 1, role="server")
            names |= set(re.findall(r'^psoup_build_info{.*server="([^"]+)"', scrape.text, re.M))
            assert scrape.value("psoup_engine_up") == 0
            assert readiness(f"127.0.0.1:{port}")[0] == 200
        assert len(names) == 2
    finally:
        assert server.stop() == 0


def free_pair() -> int:
    """Return the first of two free ports that follow each other."""
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port: int = first.getsockname()[1]
            with suppress(OSError, OverflowError):
                second.bind(("127.0.0.1", port + 1))
                return port
