"""psoup pull: options, what it prints, and the exit code a scheduler gets."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from client_sdk import (
    BadPull,
    ConnectionFailed,
    ErrorDetail,
    HookFailed,
    NotFound,
    OutputBusy,
    PullReport,
    Timeout,
)
from client_sdk.pulls._receipt import ReceiptFile
from psoup.cli import cli
from psoup.cli.pull_reports import code_of_all
from tests.client_sdk.pulls.conftest import DEAR, NINE, Place
from tests.support.system.processes import Process

pytestmark = pytest.mark.process

Run = Callable[..., Result]


@pytest.fixture
def run(place: Place) -> Run:
    """`psoup pull` for the test's own tenant."""

    def invoke(*arguments: object, code: int = 0, store: tuple[str, ...] = ()) -> Result:
        before = ["--target", place.store.target, "--tenant", place.store.names[0], *store]
        result = CliRunner().invoke(cli, [*before, "pull", *map(str, arguments)])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == code, result.output
        return result

    return invoke


def test_csv_for_spreadsheets(place: Place, run: Run) -> None:
    """What a spreadsheet would compute is a text; another choice writes the output again."""
    texts = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "1=1", "text"]
    rows = [{"symbol": text, "price": -5.0, "at": NINE} for text in texts]
    place.client.publish("trades", rows)
    to = place.folder / "a.csv"
    options = ("--sql", "SELECT symbol, price FROM trades", "--to", to)
    run(*options)
    assert to.read_text().splitlines()[1:] == [f'"{text}",-5' for text in texts]
    run(*options, "--csv-safe")
    safe = [*(f"'{text}" for text in texts[:5]), *texts[5:]]
    assert to.read_text().splitlines()[1:] == [f'"{text}",-5' for text in safe]


def test_by_key_by_handle_and_by_text(run: Run, place: Place) -> None:
    place.trade(150)
    registered = place.client.register(DEAR, key="dear")
    first = run("dear", "--to", place.folder / "a.csv").stdout
    row = "1 row at 2025-03-03 09:00:00Z"
    assert f"  dear  {row}  changed: 1 received, whole (first)  -> " in first
    assert (
        f"  dear  {row}  unchanged: 0 received  "
        in run("dear", "--to", place.folder / "a.csv").stdout
    )
    assert f"  b  {row}  " in run(registered.hex, "--to", place.folder / "b.csv").stdout
    query = "SELECT symbol, price FROM trades WHERE price > :least"
    options = ("--param", "least=100", "--window", "RANGE 1 HOUR", "--name", "my-own")
    assert (
        f"  my-own  {row}  "
        in run("--sql", query, *options, "--to", place.folder / "c", "--format", "jsonl").stdout
    )
    texts = {name: (place.folder / name).read_text() for name in ("a.csv", "b.csv", "c")}
    assert texts["a.csv"] == texts["b.csv"] == '"symbol","price"\n"IBM",150\n'
    assert json.loads(texts["c"]) == {"symbol": "IBM", "price": 150.0}


def test_lines_for_programs_and_silence(run: Run, place: Place) -> None:
    place.trade(150)
    to = place.folder / "dear.csv"
    output = json.loads(run("--sql", DEAR, "--to", to, "--json").stdout)
    assert (output["pull"], output["rows"], output["received"], output["changed"]) == (
        "dear",
        1,
        1,
        True,
    )
    assert output["output"] == str(to) and output["error"] is None and output["next_in"] is None
    quiet = run("--sql", DEAR, "--to", to, "--quiet")
    assert (quiet.stdout, quiet.stderr) == ("", "")
    wrong = run("--sql", "SELECT prize FROM trades", "--to", to, "--json", code=1)
    assert json.loads(wrong.stdout)["error_reason"] == "UNKNOWN_COLUMN"


# ---- exit codes


def test_0_or_the_code_of_a_change(run: Run, place: Place) -> None:
    place.trade(150)
    arguments = ("--sql", DEAR, "--to", place.folder / "dear.csv", "--changed-code", 10)
    run(*arguments, code=10)
    run(*arguments, code=0)


def test_1_refused(run: Run, place: Place) -> None:
    to = place.folder / "dear.csv"
    assert "no registration with client key 'deer'" in run("deer", "--to", to, code=1).stderr
    wrong = run("--sql", "SELECT prize FROM trades", "--to", to, "--every", "1h", code=1)
    assert "did you mean price?" in wrong.stderr
    (place.folder / "x.db").write_text("no database at all, but long enough to be taken for one")
    assert (
        "x.db could not be written"
        in run("--sql", DEAR, "--to", place.folder / "x.db", code=1).stderr
    )
    assert not to.exists()


@pytest.mark.parametrize(
    ("arguments", "output"),
    [
        (["dear"], "give --to OUTPUT"),
        (["--to", "a.csv"], "give the client key or handle"),
        (["dear", "--to", "answers"], "does not say the format, the name has no suffix"),
        (["dear", "--to", "y.docx"], ".docx is no known suffix; end it in .parquet"),
        (["dear", "--to", "y.xlsx"], "spreadsheets are not written, but open a .csv"),
        (["dear", "--to", "none/a.csv"], "there is no folder"),
        (["dear", "--to", "a.json", "--csv-safe"], "--csv-safe is for the format csv"),
        (["dear", "--to", "a.csv", "--every", "soon"], "not a duration"),
        (["dear", "--to", "a.csv", "--every", "1m", "--jitter", "1h"], "--jitter: must be shorter"),
        (["dear", "--to", "a.csv", "--jitter", "1h"], "need --every"),
        (["dear", "--to", "a.csv", "--hook-limit", "1m"], "need --on-change"),
        (["dear", "--to", "a.csv", "--param", "x=1"], "parameters and lease belong to a text"),
        (["dear", "--to", "a.csv", "--name", "a b"], "is not allowed"),
        (["dear", "--to", "a.csv", "--file", __file__], "does not go with --file"),
        (["--file", __file__], "test_command.py:"),
        (["--file", "none.toml"], "does not exist"),
    ],
)
def test_2_wrong_usage(run: Run, arguments: list[str], output: str) -> None:
    assert output in run(*arguments, code=2).stderr


def test_3_no_store(run: Run, place: Place) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        target = f"127.0.0.1:{free.getsockname()[1]}"
    result = run("--sql", DEAR, "--to", place.folder / "a.csv", store=("--target", target), code=3)
    assert "No answer from a store" in result.stderr and "failed" in result.stderr


def test_4_the_output_is_in_use(run: Run, place: Place) -> None:
    with ReceiptFile(place.folder / "a.csv.pull"):
        result = run("--sql", DEAR, "--to", place.folder / "a.csv", code=4)
    assert "another pull is writing to this output" in result.stderr


def test_5_the_hook_failed(run: Run, place: Place) -> None:
    arguments = ["--sql", DEAR, "--to", place.folder / "a.csv", "--on-change", "exit 7"]
    assert "on_change ended with 7" in run(*arguments, "--hook-must-succeed", code=5).stderr
    result = run(*arguments, code=0)
    assert "on_change ended with 7" in result.stderr and "unchanged" in result.stdout


def test_75_try_again_later(run: Run, place: Place) -> None:
    run("--sql", DEAR, "--to", place.folder / "a.csv", store=("--timeout", "0.001"), code=75)


def test_of_several_the_gravest(place: Place) -> None:
    """0 and a change count only where nothing failed."""
    fine = PullReport(place.pull(), datetime.now(UTC))
    errors = [
        BadPull("x"),
        NotFound("x"),
        HookFailed("x"),
        ConnectionFailed("x"),
        Timeout("x"),
        OutputBusy("x"),
    ]
    reports = [replace(fine, error=error) for error in errors] + [replace(fine, changed=True), fine]
    codes = [code_of_all(reports[first:], 9) for first in range(len(reports))]
    assert codes == [2, 1, 5, 3, 75, 4, 9, 0]
    stopping = ConnectionFailed("x", detail=ErrorDetail(reason="STOPPING"))
    assert code_of_all([replace(fine, error=stopping)], 9) == 75


# ---- a file of several


def test_a_file_and_what_it_would_do(run: Run, place: Place) -> None:
    place.trade(150)
    place.trade(50)
    path = place.folder / "pulls.toml"
    path.write_text(
        f'[defaults]\nevery = "15m"\n[pulls.dear]\nsql = "{DEAR}"\nto = "all.sqlite"\n'
        '[pulls.cheap]\nsql = "SELECT price FROM trades WHERE price < 100"\nto = "all.sqlite"\n'
        '[pulls.nobody]\nkey = "nobody"\nto = "nobody.json"\non_change = "true"\njitter = "1m"\n'
    )
    output = run("--file", path, "--check").stdout
    assert "dear: registers: SELECT symbol, price FROM trades" in output
    assert f"  to        {place.folder / 'all.sqlite'} (sqlite)\n" in output
    assert "  schedule  every 15m after the first one, up to 1m later; after" in output
    assert "  on change true (at most 5m)" in output
    assert not (place.folder / "all.sqlite").exists()

    result = run("--file", path, "--once", code=1)
    assert [line.split("  ")[1:3] for line in result.stdout.splitlines()] == [
        ["dear", "1 row at 2025-03-03 09:00:00Z"],
        ["cheap", "1 row at 2025-03-03 09:00:00Z"],
    ]
    assert "no registration with client key 'nobody'" in result.stderr
    assert run("--file", path, "--once", "--check").stdout.count("schedule  once") == 3


# ---- signals


def start(place: Place, *arguments: str) -> Process:
    store = ["--target", place.store.target, "--tenant", place.store.names[0]]
    command = [
        "-m",
        "psoup.cli",
        *store,
        "pull",
        "--sql",
        DEAR,
        "--to",
        str(place.folder / "a.csv"),
    ]
    return Process([*command, *arguments], place.folder / "pull.log")


def test_sigterm_between_and_in_the_middle_of_pulls(run: Run, place: Place) -> None:
    place.trade(150)
    waiting = start(place, "--every", "1h")
    waiting.wait_for("next in")
    assert waiting.stop() == 0
    assert (place.folder / "a.csv").read_text() == '"symbol","price"\n"IBM",150\n'

    place.trade(160)
    begun = place.folder / "begun"
    hooked = start(place, "--once", "--on-change", f"touch {begun}; sleep 600")
    _wait_for(begun)
    assert hooked.stop() == 143
    result = run("--sql", DEAR, "--to", place.folder / "a.csv", "--on-change", "exit 7")
    assert "unchanged" in result.stdout and "on_change ended with 7" in result.stderr


def _wait_for(path: Path) -> None:
    deadline = time.monotonic() + 120
    while not path.exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
