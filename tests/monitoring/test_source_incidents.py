"""The runbook, by real incidents of sources."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from client_sdk import PsoupError
from psoup.cli import cli
from tests.support.incidents import Incident, expression_of, quick_expression_of
from tests.support.system.processes import START_SECONDS

pytestmark = [pytest.mark.long, pytest.mark.process]

ASIDE = (
    "CREATE STREAM rejected (source TEXT, place TEXT, reason TEXT, message TEXT, raw TEXT, "
    "metadata TEXT)"
)


def write(incident: Incident, more: str = "") -> Path:
    """Write a file of two sources, so that the process runs on if one of them stops."""
    file = incident.folder / "sources.toml"
    file.write_text(
        "".join(
            f'[sources.{name}]\nfiles = "{name}/*.jsonl"\nstream = "s"\n{more}'
            for name in ("doors", "gates")
        )
    )
    for name in ("doors", "gates"):
        (incident.folder / name).mkdir(exist_ok=True)
    incident.names |= {"sources.toml": str(file), "SOURCE": "doors"}
    return file


def wait_until(ready: Callable[[], bool]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not ready():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def drop(incident: Incident, name: str, text: str) -> None:
    path = incident.folder / "doors" / name
    part = path.with_suffix(".part")
    part.write_text(text)
    os.utime(part, (1_700_000_000, 1_700_000_000))
    part.rename(path)


def test_source_stopped(incident: Incident) -> None:
    incident.start_server()
    with incident.client() as client:
        client.define("CREATE STREAM s (a BIGINT)")
        file = write(incident)
        incident.start_sources(file)
        incident.prometheus.wait_for('psoup_source_up{source="doors"} == 1')
        drop(incident, "a.jsonl", '{"a": 1}\noops\n{"a": 2}\n')
        incident.wait_for("PsoupSourceStopped")
        # It is written once a second.
        status = incident.folder / "sources.toml.status"
        wait_until(lambda: '"state": "stopped", "reason": "bad row' in status.read_text())
        incident.look("Source stopped")
        log = (incident.folder / "source.log").read_text()
        mark = re.search(r"the next mark is (\{.*\})", log)
        assert mark is not None, log
        command = ["--target", incident.target, "source", "skip", str(file), "doors", "--to"]
        skipped = CliRunner().invoke(cli, [*command, mark[1]])
        assert skipped.exit_code == 0, skipped.output
        incident.start_sources(file)
        incident.wait_for_end("PsoupSourceStopped")
        incident.prometheus.wait_for('psoup_source_lag_seconds{source="doors"} == 0')
        assert sorted(row["a"] for row in client.ask("SELECT a FROM s")) == [1, 2]


def test_source_behind(incident: Incident) -> None:
    """The log is full, since no engine runs; a minute behind is three seconds here."""
    assert "> 60" in expression_of("PsoupSourceBehind")
    expression = quick_expression_of("PsoupSourceBehind").replace("> 60", "> 3")
    incident.start_server("--backlog", "1MB")
    with incident.client(timeout=2) as client:
        client.define("CREATE STREAM s (a BIGINT)")
        with pytest.raises(PsoupError, match="log"):
            for number in range(1000):
                client.publish("s", [{"a": number + n} for n in range(20_000)])
        incident.start_sources(write(incident))
        incident.prometheus.wait_for_end(expression)
        drop(incident, "a.jsonl", '{"a": -1}\n')
        incident.prometheus.wait_for(expression)
        incident.look("Source behind")
        incident.start_engine()
        wait_until(lambda: bool(list(client.ask("SELECT a FROM s WHERE a = -1"))))
        incident.prometheus.wait_for_end(expression)


def test_rows_aside(incident: Incident) -> None:
    incident.start_server()
    with incident.client() as client:
        client.define("CREATE STREAM s (a BIGINT)")
        client.define(ASIDE)
        file = write(incident, 'bad_rows = "aside"\naside = "rejected"\n')
        incident.start_sources(file)
        incident.prometheus.wait_for('psoup_source_bad_rows_total{source="doors"} == 0')
        incident.wait_for_end("PsoupRowsAside")
        drop(incident, "a.jsonl", '{"a": 1}\n{"a": "2"}\n')
        incident.wait_for("PsoupRowsAside")
        incident.look("Rows aside")
        incident.wait_for_end("PsoupRowsAside")
        write(incident, 'bad_rows = "aside"\naside = "rejected"\nparse = ["a"]\n')
        command = ["--target", incident.target, "source", "replay-aside", str(file), "doors"]
        replayed = CliRunner().invoke(cli, command)
        assert replayed.exit_code == 0 and "1 row in s" in replayed.output, replayed.output
        assert sorted(row["a"] for row in client.ask("SELECT a FROM s")) == [1, 2]
