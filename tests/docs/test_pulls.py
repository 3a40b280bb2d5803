"""The pages about pulls: their session runs as written, and their tables are complete."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import click
import pytest

from client_sdk import Pull, PullReport, Store, load_pulls
from client_sdk.pulls import FORMATS
from client_sdk.pulls._deliver import facts
from client_sdk.pulls._file import PULL_KEYS, SHARED_KEYS
from client_sdk.pulls._sinks import SUFFIXES
from psoup.cli import cli, problems
from psoup.cli.pull import pull as command
from tests.support.client_sdk.tables import read_sqlite
from tests.support.docs.markdown import ROOT, blocks, code, read, table
from tests.support.docs.sessions import Terminal, commands
from tests.support.server.process import ServerProcess

PAGE = read("docs/how-to/pull-on-a-schedule.md") + read("docs/reference/pulls.md")
README = read("README.md")

TRADES = """symbol,price,size,at
IBM,184.25,9000,2025-11-13T09:01:00Z
IBM,185.25,12000,2025-11-13T09:02:00Z
SAP,190.5,20000,2025-11-13T09:05:00Z
IBM,183.9,15000,2025-11-13T09:10:00Z
SAP,191,100,2025-11-13T09:10:30Z
"""
MORE = "symbol,price,size,at\nIBM,186,500,2025-11-13T09:10:40Z\n"


@pytest.fixture
def address(shared_server: ServerProcess) -> str:
    return shared_server.address


def begun() -> Iterator[str]:
    """The first three commands of the README: a stream, a registration, its rows."""
    session = next(blocks(README, "console")).text
    for line in re.split(r"^\$ (?=psoup)", session, flags=re.MULTILINE)[1:4]:
        quotes = [place.end() for place in re.finditer('"', line)]
        yield line[: quotes[-1]] if quotes else line.partition("\n")[0]


def settled(text: str) -> list[str]:
    """Without what differs from run to run."""
    text = re.sub(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ", "(time)", text, flags=re.MULTILINE)
    text = re.sub(r"\d+\.\d\d s", "(seconds)", text)
    return [re.sub(r"^(  from      ).*", r"\1…", line) for line in text.splitlines()]


@pytest.mark.process
def test_the_session_runs_as_written(
    address: str, tenant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "trades.csv").write_text(TRADES)
    (tmp_path / "more.csv").write_text(MORE)
    terminal = Terminal(address, tenant)
    for line in begun():
        terminal.run(line)
    (block,) = blocks(PAGE, "console")
    for line, expected in commands(block.text):
        assert settled(terminal.run(line)) == settled(expected), line


@pytest.mark.process
def test_the_example_runs(address: str, tenant: str, tmp_path: Path) -> None:
    path = tmp_path / "pulls.toml"
    path.write_text(read("examples/pulls.toml"))
    (stream,) = re.findall(r"#   (CREATE STREAM .*\n)#   (ORDERED BY .*\n)", path.read_text())
    (tmp_path / "trades.csv").write_text(TRADES)
    terminal = Terminal(address, tenant)
    terminal.run(f'psoup stream create "{" ".join(stream)}"')
    terminal.run(f"psoup publish trades {tmp_path / 'trades.csv'}")
    assert "last-trades: registers: SELECT" in terminal.run(f"psoup pull -f {path} --check")
    output = terminal.run(f"psoup pull -f {path} --once")
    assert [line.split("  ")[1:3] for line in output.splitlines()] == [
        ["dear", "3 rows at 2025-11-13 09:10:30Z"],
        ["by-symbol", "2 rows at 2025-11-13 09:10:30Z"],
        ["last-trades", "5 rows at 2025-11-13 09:10:30Z"],
    ]
    assert sorted(read_sqlite(tmp_path / "answers.sqlite", "by-symbol")) == [
        ("IBM", 3, 36000),
        ("SAP", 2, 20100),
    ]
    assert (tmp_path / "dear.log").read_text() == "3 dear trades at 2025-11-13T09:10:30+00:00\n"
    again = terminal.run(f"psoup pull -f {path} --once")
    assert again.count("unchanged: 0 received") == 3


def test_the_pulls_of_the_page_can_be_loaded(tmp_path: Path) -> None:
    (block,) = blocks(PAGE, "toml")
    (tmp_path / "pulls.toml").write_text(block.text)
    names = [pull.name for pull in load_pulls(tmp_path / "pulls.toml")]
    assert names == ["dear", "big-blue"]


def test_the_keys_are_all_there() -> None:
    documented: dict[str, bool] = {}
    for keys, shared, _ in table(PAGE, "key", "in `[defaults]`", ""):
        documented |= {key: shared == "yes" for key in re.findall(r"`(\w+)`", keys)}
    assert documented == {key: key in SHARED_KEYS for key in PULL_KEYS | SHARED_KEYS}


def test_the_facts_for_the_hook_are_all_there() -> None:
    documented = [
        name for row in table(PAGE, "variable", "") for name in re.findall(r"`(\w+)`", row[0])
    ]
    report = PullReport(Pull("a", Path("a.csv"), sql="x", store=Store()), datetime.now(UTC))
    assert documented == list(facts(report))


def test_the_formats_are_all_there() -> None:
    documented = {
        code(row[0]): re.findall(r"`(\.\w+)`", row[1])
        for row in table(PAGE, "format", "suffixes", "")
    }
    assert list(documented) == list(FORMATS)
    assert {
        suffix: form for form, suffixes in documented.items() for suffix in suffixes
    } == SUFFIXES


def test_the_exit_codes_are_those_of_the_program() -> None:
    documented = {int(row[0]) for row in table(PAGE, "code", "when") if row[0].isdigit()}
    codes = {value for name, value in vars(problems).items() if name.isupper()}
    assert documented == {0} | codes


def test_every_option_it_names_is_one() -> None:
    options = {
        name
        for option in command.params
        if isinstance(option, click.Option)
        for name in option.opts
    }
    group = {name for option in cli.params for name in option.opts}
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", PAGE)) <= options | group
    schedule = {code(row[0]).split()[0] for row in table(PAGE, "option", "")}
    assert schedule == {"--every", "--aligned", "--jitter", "--backoff", "--backoff-cap"}


def test_its_python_is_python_and_imports_what_there_is() -> None:
    import client_sdk

    for block in blocks(PAGE, "python"):
        for node in ast.walk(ast.parse(block.text)):
            if isinstance(node, ast.ImportFrom) and node.module == "client_sdk":
                assert all(hasattr(client_sdk, name.name) for name in node.names)


def test_it_is_linked() -> None:
    for page in ("README.md", "docs/index.md"):
        assert "pull-on-a-schedule.md" in read(page)
    assert (ROOT / "examples" / "pulls.toml").is_file()
