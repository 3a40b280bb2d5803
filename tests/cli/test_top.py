"""psoup top over a store."""

from __future__ import annotations

import io
import json
import socket
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from click.testing import CliRunner
from rich.console import Console

from client_sdk import Client, StoreStatus
from psoup.cli import cli
from psoup.cli.call_rates import Buckets, CallRate, call_rates
from psoup.cli.top_looks import BackfillProgress, Look, ServerLook, StreamRate, WorkSum
from psoup.cli.top_screen import screen
from psoup.cli.top_servers import Servers
from tests.support.server.process import ServerProcess

pytestmark = pytest.mark.process


def run(address: str, *arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(cli, ["--target", address, "top", *arguments])
    return result.exit_code, result.output


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server that nobody else uses: a screen shows only the busiest."""
    server = ServerProcess(tmp_path_factory.mktemp("top") / "store")
    yield server.address
    server.stop()


def test_a_look_shows_streams_and_work(address: str) -> None:
    with Client(address) as client:
        client.define("CREATE STREAM top_rows (a BIGINT)")
        client.publish("top_rows", [{"a": n} for n in range(7)])
        client.register("SELECT a FROM top_rows", key="top-query")
        list(client.invoke("top-query"))
    code, output = run(address, "--once", "--every", "0.1")
    assert code == 0, output
    assert "top_rows" in output and "top-query" in output and "no engine runs" in output


def test_json_has_rates(address: str) -> None:
    with Client(address) as client:
        client.define("CREATE STREAM top_rates (a BIGINT)")
        client.publish("top_rates", [{"a": 1}])
    code, output = run(address, "--once", "--json", "--every", "0.1")
    assert code == 0, output
    look = json.loads(output)
    (stream,) = [stream for stream in look["streams"] if stream["name"] == "top_rates"]
    assert stream["rows"] == 1 and stream["rows_per_second"] == 0
    (server,) = look["servers"]
    assert server["target"] == address and server["status"]["stream_count"] >= 1
    assert look["calls"] == []


def test_servers_that_are_away_are_shown(address: str) -> None:
    code, output = run(f"127.0.0.1:1,{address}", "--once", "--every", "0.1")
    assert code == 0 and "127.0.0.1:1: no answer" in output and f"{address}: memory" in output
    code, output = run("127.0.0.1:1", "--once")
    assert code == 3 and "No answer" in output


def test_each_server_of_a_group_is_asked(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "store", "--servers", "3")
    try:
        with closing(Servers(lambda: Client(server.address))) as servers:
            # Each ask goes on to look for those that it has not met yet.
            while len(answers := servers.ask()) < 3:
                pass
            assert len({status.server for _, status in answers}) == 3
            assert {status.server_count for _, status in answers} == {3}
            # A client that has lost its server may come to one that another has.
            answers[0][0].close()
            servers._clients.remove(answers[0][0])
            while len(answers := servers.ask()) < 3:
                pass
        code, output = run(server.address, "--once", "--every", "0.1")
        assert code == 0 and output.count(f"{server.address} {socket.gethostname()}/") >= 2
        assert run_status(server.address).count("one of 3 on this port") == 1
    finally:
        server.stop()


def run_status(address: str) -> str:
    return CliRunner().invoke(cli, ["--target", address, "status"]).output


def test_calls_come_from_metrics(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret")
    server = ServerProcess(
        tmp_path / "store", "--metrics", "127.0.0.1:0", "--metrics-token-file", str(token)
    )
    try:
        metrics = server.read_line().removeprefix("metrics ready on ")
        options = ("--once", "--json", "--every", "1.1", "--metrics", metrics)
        code, output = run(server.address, *options)
        assert code == 2 and "--metrics-token-file" in output
        code, output = run(server.address, *options, "--metrics-token-file", str(token))
        assert code == 0, output
        calls = {call["method"]: call for call in json.loads(output)["calls"]}
        assert calls["Status"]["calls_per_second"] > 0
        assert 0 < calls["Status"]["p50_seconds"] <= calls["Status"]["p99_seconds"]
    finally:
        server.stop()


def test_rates_and_quantiles_are_those_of_the_calls_in_between() -> None:
    limits = (0.001, 0.01, 0.1, float("inf"))

    def buckets(*counts: float) -> Buckets:
        return {("Invoke", limit): count for limit, count in zip(limits, counts, strict=True)}

    (rate,) = call_rates(buckets(90, 90, 90, 90), buckets(90, 140, 190, 190), 10)
    assert rate.calls_per_second == 10
    assert rate.p50_seconds == pytest.approx(0.01) and rate.p99_seconds == pytest.approx(0.0982)
    # Nothing in between, and a server that counts from 0 again.
    assert call_rates(buckets(90, 90, 90, 90), buckets(90, 90, 90, 90), 1) == ()
    assert call_rates(buckets(90, 90, 90, 90), buckets(1, 1, 1, 1), 1) == ()
    # Past the last limit all that is certain is the limit.
    (rate,) = call_rates({}, buckets(0, 0, 0, 5), 1)
    assert rate.p99_seconds == 0.1


def test_a_narrow_screen_keeps_its_lines() -> None:
    work = WorkSum(
        "main", "an-owner-with-a-long-name", "a-query-with-a-long-name" * 9, 5_000_000, 3
    )
    rate = StreamRate("a_stream_with_a_long_name" * 9, 7, 1.5, 0.25)
    status = SimpleNamespace(
        store_id="0" * 32,
        now=datetime(2026, 11, 18),
        engine=None,
        epoch=1,
        behind_rows=2,
        behind=timedelta(seconds=1),
        cache_bytes=1 << 30,
        cache_limit_bytes=1 << 31,
        stream_count=1,
        registration_count=1,
        server="a-machine/17",
        server_count=1,
    )
    look = Look(
        (ServerLook("a.example:7181", cast(StoreStatus, status)),),
        BackfillProgress(25, 100),
        (rate,),
        (CallRate("Invoke", 1.0, 0.001, None),),
        (work,),
        (work, work),
    )
    terminal = Console(width=40, height=10, file=io.StringIO())
    lines = terminal.render_lines(screen(look), pad=False)
    texts = ["".join(segment.text for segment in line).rstrip() for line in lines]
    assert all(len(text) <= 40 for text in texts)
    assert texts[2].startswith("back-fill ███████████████░░░░░")
    assert [text for text in texts if "…" in text and "1.5" in text and "0.2 s" in text]
    assert len(texts) == 18


def test_without_a_terminal_it_looks_once(address: str) -> None:
    code, output = run(address)
    assert code == 2 and "--once" in output


def test_json_needs_one_look(address: str) -> None:
    code, output = run(address, "--json")
    assert code == 2 and "--once" in output
