"""Texts from others reach the terminal escaped, and a spreadsheet as texts."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path

import pytest

from client_sdk import Client, PsoupError
from psoup.cli.problems import show
from psoup.escaping import escaped, escaped_json
from psoup.process_log import TextFormatter
from tests.cli.conftest import Run
from tests.conftest import ROOT

# Clears the screen, sets the title, begins another line, turns the direction.
EVIL = "a\x1b[2J\x1b]0;owned\x07\nadmin  granted\r\x9bX\u202eb [red]c"
SHOWN = r"a\x1b[2J\x1b]0;owned\x07\nadmin  granted\r\x9bX\u202eb [red]c"


def is_plain(text: str) -> bool:
    return not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", text)


@pytest.fixture
def evil(run: Run, client: Client) -> None:
    run("stream", "create", "CREATE STREAM s (a TEXT)")
    client.publish("s", [{"a": EVIL}])


def test_escaping() -> None:
    assert escaped(EVIL) == SHOWN
    assert escaped("one\n\ttwo\x1b", lines=True) == "one\n\ttwo\\x1b"
    assert escaped("ungefähr 5 €, 日本 \U0001f600") == "ungefähr 5 €, 日本 \U0001f600"
    assert escaped("\ud800") == r"\ud800"
    written = escaped_json(json.dumps({"a": EVIL}, ensure_ascii=False))
    assert is_plain(written) and json.loads(written) == {"a": EVIL}


@pytest.mark.parametrize("form", ["table", "json", "jsonl"])
def test_answers(run: Run, evil: None, form: str) -> None:
    written = run("ask", "SELECT a FROM s", "--format", form).stdout
    assert is_plain(written)
    assert SHOWN in written if form == "table" else "u001b" in written


def test_names_of_columns(run: Run, evil: None) -> None:
    name = '"x\x1b[31m[red]"'
    answer = run("ask", f"SELECT a AS {name} FROM s")
    assert is_plain(answer.stdout) and is_plain(answer.stderr)


def test_texts_of_others_in_lists(run: Run, evil: None, client: Client) -> None:
    client.register(f"SELECT a FROM s WHERE a = '{EVIL}'", key="mine")
    for command in (["list"], ["explain", "mine"], ["status"], ["stream", "show", "s"]):
        output = run(*command)
        assert is_plain(output.stdout) and is_plain(output.stderr), command


def test_errors(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    refused = run("stream", "show", EVIL, code=1)
    assert is_plain(refused.stderr) and r"\x1b[2J" in refused.stderr
    show(PsoupError(EVIL))
    assert is_plain(capsys.readouterr().err)


def test_every_printer_escapes() -> None:
    """Nothing of the command line prints by itself."""
    for path in (ROOT / "psoup" / "cli").rglob("*.py"):
        prints = re.findall(r"click\.s?echo\(|\bprint\(", path.read_text())
        allowed = {"output.py": 7, "processes.py": 0}
        assert len(prints) <= allowed.get(path.name, 0), path


def test_log_lines(caplog: pytest.LogCaptureFixture) -> None:
    record = logging.LogRecord("psoup", logging.INFO, "", 1, "peer %s", (EVIL,), None)
    _, _, line = TextFormatter().format(record).split(" ", 2)
    assert line == f"INFO peer {SHOWN}"
    try:
        raise OSError("of two\nlines")
    except OSError as error:
        failed = logging.LogRecord("p", logging.ERROR, "", 1, "x", (), (type(error), error, None))
    assert TextFormatter().format(failed).splitlines()[-1] == "lines"


FORMULAS = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "＝1", "1=1", "", "'", None, "text"]
SAFE = ["'=1+1", "'+1", "'-1", "'@SUM(A1)", "'\t=1", "'＝1", "1=1", "", "'", None, "text"]


def lines_of(texts: list[str | None]) -> list[str]:
    return ["" if text is None else f'"{text}"' for text in texts]


@pytest.fixture
def formulas(run: Run, client: Client) -> None:
    run("stream", "create", "CREATE STREAM f (n BIGINT, a TEXT)")
    client.publish("f", [{"n": -number, "a": text} for number, text in enumerate(FORMULAS)])


@pytest.mark.parametrize(("options", "expected"), [([], FORMULAS), (["--csv-safe"], SAFE)])
def test_formulas_in_csv(
    run: Run, formulas: None, options: list[str], expected: list[str | None]
) -> None:
    written = run("ask", "SELECT n, a FROM f", "--format", "csv", *options).stdout
    numbered = [f"{-number},{text}" for number, text in enumerate(lines_of(expected))]
    assert written.splitlines() == ['"n","a"', *numbered]


def test_safe_is_for_csv(run: Run, formulas: None, tmp_path: Path) -> None:
    run("ask", "SELECT a FROM f", "--csv-safe", code=2)
    run("pull", "--sql", "SELECT a FROM f", "--to", str(tmp_path / "f.json"), "--csv-safe", code=2)
