"""What `psoup source status` says of a process that has ended."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from psoup.cli import cli
from psoup.source.status import StatusFile
from tests.source.conftest import Sources


def ended_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_a_process_that_was_killed(tmp_path: Path) -> None:
    status = StatusFile.beside(tmp_path / "sources.toml")
    for name, state in (("a", "running"), ("b", "stopped"), ("c", "ended")):
        status.source(name, state)
    status.write()
    assert [state["state"] for state in status.read().values()] == ["running", "stopped", "ended"]
    content = json.loads(status.path.read_text())
    status.path.write_text(json.dumps({**content, "pid": ended_pid()}))
    assert [state["state"] for state in status.read().values()] == ["killed", "stopped", "ended"]
    # Nobody knows here what lives on another machine.
    status.path.write_text(json.dumps({**content, "pid": ended_pid(), "host": "elsewhere"}))
    assert status.read()["a"]["state"] == "running"


def test_a_folder_that_can_not_be_written_to(tmp_path: Path) -> None:
    lines = list[str]()
    status = StatusFile(tmp_path / "none" / "status", lines.append)
    status.source("a", "running")
    status.write()
    status.write()
    assert len(lines) == 1 and "No such file" in lines[0] and "--status" in lines[0]
    status.path.parent.mkdir()
    status.write()
    assert status.read()["a"]["state"] == "running"


@pytest.mark.process
def test_a_status_file_elsewhere(sources: Sources) -> None:
    sources.client.define("CREATE STREAM s (k BIGINT)")
    (sources.folder / "a.csv").write_text("k\n1\n")
    sources.write('[sources.f]\nfiles = "*.csv"\nstream = "s"\n')
    file, status = str(sources.file), str(sources.folder / "state" / "f.status")
    (sources.folder / "state").mkdir()
    run = sources.start("--status", status)
    sources.wait_for(lambda: sources.client.stream("s").row_count == 1)
    assert run.stop() == 143
    assert not sources.file.with_name("sources.toml.status").exists()
    arguments = ["source", "status", file, "--json", "--status", status]
    document = json.loads(CliRunner().invoke(cli, arguments).stdout)
    assert document["f"]["state"] == "ended"


@pytest.mark.process
def test_files_that_wait_are_shown(sources: Sources) -> None:
    sources.client.define("CREATE STREAM s (k BIGINT)")
    (sources.folder / "a.csv").write_text("k\n1\n")
    sources.write('[sources.f]\nfiles = "*.csv"\nstream = "s"\n')

    def run(*arguments: str) -> str:
        return CliRunner().invoke(cli, ["source", *arguments]).output

    file = str(sources.file)
    sources.wait_for(lambda: "1 files" in run("status", file))
    assert "needs no statements" in run("setup", file, "--print")
    (sources.folder / "a.csv").unlink()
    assert "nothing of f waits" in run("skip", file, "f", "--to", "latest")


@pytest.mark.process
def test_what_only_looks_creates_no_stream(sources: Sources) -> None:
    (sources.folder / "a.csv").write_text("k,at\n1,2026-01-05T09:00:00Z\n")

    def write(create: str, stream: str = "made") -> None:
        lines = f'files = "*.csv"\nstream = "{stream}"\ncreate = "{create}"\n'
        sources.write(f"[sources.f]\n{lines}")

    def run(command: str, *more: str) -> str:
        return CliRunner().invoke(cli, ["source", command, str(sources.file), *more]).output

    write("CREATE STREAM made (k BIGINT, at TIMESTAMP) ORDERED BY at")
    assert "needs no statements" in run("setup", "--print")
    assert "never run" in run("status")
    sources.wait_for(lambda: "2026-01-05" in run("check"))
    assert "there is no stream made yet; run creates it" in run("check")
    assert not sources.client.streams()
    write("CREATE STREAM other (k BIGINT)")
    assert "create: the statement does not create made" in run("check")
    write("CREATE STREAM made (k BIGIN)")
    assert "BIGIN" in run("check")
    write("DROP STREAM made")
    assert "only CREATE STREAM can be checked" in run("check")
    assert not sources.client.streams()
