"""psoup top over a store."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from click.testing import CliRunner

from client_sdk import Client
from psoup.cli import cli
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
    assert look["status"]["stream_count"] >= 1


def test_json_needs_one_look(address: str) -> None:
    code, output = run(address, "--json")
    assert code == 2 and "--once" in output
