"""In a terminal of 80 columns: names and handles are whole, so that they can be copied."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from click.testing import CliRunner

from client_sdk import Client
from psoup.cli import cli
from tests.support.server.process import ServerProcess

pytestmark = pytest.mark.process

KEY = "the-dearest-of-all-trades-since-monday"
STREAM = "a_stream_whose_name_is_as_long_as_a_name_may_be_and_not_a_letter"
LONG = "x" * 300
SQL = "SELECT symbol, price FROM trades WHERE price > 100 AND symbol <> 'IBM' RANGE 10 MINUTES"
TERMINAL = {"FORCE_COLOR": "1", "NO_COLOR": "1"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    server = ServerProcess(tmp_path_factory.mktemp("narrow") / "store", "--durability", "none")
    server.define("CREATE STREAM trades (symbol TEXT, price DOUBLE)")
    server.define(f"CREATE STREAM {STREAM} (place TEXT, free BIGINT) KEY (place)")
    yield server
    server.stop()


@pytest.fixture(scope="module")
def handles(server: ServerProcess) -> list[str]:
    with Client(server.address) as client:
        client.publish("trades", [{"symbol": LONG, "price": 101.0}])
        return [client.register(SQL, key=key).hex for key in (KEY, "dear", None)]


def lines(server: ServerProcess, *arguments: str, columns: int | None = 80) -> list[str]:
    """What is printed, without colours: to a terminal, or to a pipe where `columns` is None."""
    environment = {} if columns is None else {**TERMINAL, "COLUMNS": str(columns)}
    runner = CliRunner(env=environment)
    result = runner.invoke(cli, ["--target", server.address, *arguments])
    assert result.exit_code == 0, result.output
    return re.sub(r"\x1b\[[\d;]*m", "", result.stdout).splitlines()


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_list_shows_handles_keys_and_leases(
    server: ServerProcess, handles: list[str], columns: int
) -> None:
    head, *output = lines(server, "list", columns=columns)
    assert "lease until" in head
    for handle, key in zip(handles, (KEY, "dear", ""), strict=True):
        line = next(line for line in output if line.startswith(handle))
        assert key in line.split() or not key
        assert re.search(r"\d{4}-\d\d-\d\dT\d\d:\d\dZ", line)
    assert " ".join(output).replace("  ", " ").count("RANGE") == len(handles)


def test_list_has_room_for_queries_below(server: ServerProcess, handles: list[str]) -> None:
    _, first, below, *_ = lines(server, "list")
    assert first.startswith(handles[0])
    assert below.startswith("  SELECT symbol, price FROM trades")


@pytest.mark.usefixtures("handles")
def test_list_in_a_pipe_has_a_line_for_each(server: ServerProcess) -> None:
    head, *output = lines(server, "list", columns=None)
    assert "owner" not in head and len(output) == 3
    assert all(line.rstrip().endswith(SQL) for line in output)
    assert "owner" in lines(server, "list", "--all", columns=None)[0]


def test_stream_list_shows_names_whole(server: ServerProcess) -> None:
    output = lines(server, "stream", "list")
    assert any(line.startswith(STREAM) for line in output)
    assert any(line.startswith("trades ") for line in output)


def test_a_word_longer_than_any_name_is_folded_not_cut(
    server: ServerProcess, handles: list[str]
) -> None:
    output = lines(server, "invoke", handles[0])
    assert "".join(output).count("x") == len(LONG)
    assert max(map(len, output)) <= 80


@pytest.mark.parametrize("group", [[], ["copy"], ["stream"]])
def test_help_cuts_no_sentence(group: list[str]) -> None:
    output = CliRunner(env={"COLUMNS": "80"}).invoke(cli, [*group, "--help"]).output
    commands = output.partition("Commands:\n")[2]
    assert commands and "..." not in commands
