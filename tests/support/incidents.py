"""A store in trouble, watched by a real Prometheus, and the page that a stranger has about it."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from client_sdk import Client
from tests.support.docs.markdown import ROOT, blocks, read
from tests.support.docs.sessions import Terminal, commands
from tests.support.haproxy import free_port
from tests.support.prometheus import Prometheus
from tests.support.system.processes import Process, RunningStore

RULES = (ROOT / "deploy/prometheus/rules.yml").read_text()

# Stands for the journal of systemd: the unit of a server or an engine has its log in a file here.
_JOURNALCTL = """\
#!/bin/sh
case "$2" in
  psoup-server@*) exec cat "$LOGS/server.log" ;;
  psoup-engine@*) exec cat "$LOGS/engine.log" ;;
  psoup-source@*) exec cat "$LOGS/source.log" ;;
esac
exit 1
"""
# How long rates and slopes look back here. Nothing is slower than it is in the alerts.
_WINDOW = "[10s]"


def expression_of(alert: str) -> str:
    """Return the expression of an alert."""
    match = re.search(rf"- alert: {alert}\n +expr: >-\n +(.+)\n", RULES)
    assert match is not None, alert
    return match[1]


def quick_expression_of(alert: str) -> str:
    """Return the expression of an alert with rates and slopes of seconds, instead of minutes."""
    return re.sub(r"\[\d+[mh]\]", _WINDOW, expression_of(alert))


class Incident:
    """A store whose processes keep their ports when they start again.

    `names` are what a stranger puts in place of the names in capitals on the page.
    """

    def __init__(self, folder: Path, prometheus: Prometheus) -> None:
        self.folder = folder
        self.prometheus = prometheus
        self.processes = RunningStore(folder)
        self.port, self._metrics, self._engine_metrics = free_port(), free_port(), free_port()
        self._source_metrics = free_port()
        self._sources: Process | None = None
        self.target = f"127.0.0.1:{self.port}"
        self.names = {
            "HOST:7181": self.target,
            "HOST:9181": f"127.0.0.1:{self._metrics}",
            "HOST:9182": f"127.0.0.1:{self._engine_metrics}",
            "HOST:9183": f"127.0.0.1:{self._source_metrics}",
            "STORE": str(self.store),
        }
        self.environment: dict[str, str] = {}
        self._jobs: dict[str, str] = {}
        program = folder / "journalctl"
        program.write_text(_JOURNALCTL)
        program.chmod(0o755)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.prometheus.watch({})
        self.stop_sources()
        self.processes.__exit__(kind, error, trace)

    @property
    def store(self) -> Path:
        return self.processes.store

    @property
    def server(self) -> Process:
        """The server that was started last."""
        return self.processes.servers[-1]

    def place_store(self, place: Path) -> None:
        """Have the store in this folder, for processes that start from now on."""
        self.processes.store = place
        self.names["STORE"] = str(place)

    def start_server(self, *options: str) -> None:
        place = ("--port", str(self.port), "--metrics", f"127.0.0.1:{self._metrics}")
        self.processes.start_server(*place, *options)
        self._note_log(self.server, "server.log")
        self.watch("psoup-server", f"127.0.0.1:{self._metrics}")

    def start_engine(self, *options: str) -> Process:
        place = ("--metrics", f"127.0.0.1:{self._engine_metrics}")
        engine = self.processes.start_engine(*place, *options)
        self.watch("psoup-engine", f"127.0.0.1:{self._engine_metrics}")
        return engine

    def start_sources(self, file: Path) -> None:
        """Run the sources of a file, instead of those that run."""
        self.stop_sources()
        metrics = ("--metrics", f"127.0.0.1:{self._source_metrics}")
        command = ["-m", "psoup.cli", "--target", self.target, "source", "run", str(file), *metrics]
        self._sources = Process(command, self.folder / "source.log")
        self._sources.wait_for("metrics ready on")
        self.watch("psoup-source", f"127.0.0.1:{self._source_metrics}")

    def stop_sources(self) -> None:
        if self._sources is not None and self._sources.alive:
            self._sources.kill()

    def _note_log(self, process: Process, name: str) -> None:
        link = self.folder / name
        link.unlink(missing_ok=True)
        link.symlink_to(process.output)

    def watch(self, job: str, address: str) -> None:
        self._jobs[job] = address
        self.prometheus.watch(self._jobs)

    def client(self, **options: Any) -> Client:
        return Client(self.target, **options)

    def wait_for(self, alert: str) -> None:
        """Wait until the expression of an alert holds."""
        self.prometheus.wait_for(quick_expression_of(alert))

    def wait_for_end(self, alert: str) -> None:
        self.prometheus.wait_for_end(quick_expression_of(alert))

    def look(self, heading: str) -> None:
        """Run the commands under a heading of the page, and assert that they print what it shows.

        What it shows are lines of the output, in their order; `…` stands for any text.
        """
        for line, expected in commands_under(heading):
            output, expected = self._run(self._named(line)), self._named(expected)
            assert _holds(output, expected), f"$ {line}\n{output}\n\nand not\n{expected}"

    def _named(self, text: str) -> str:
        for name, value in self.names.items():
            text = text.replace(name, value)
        return text

    def _run(self, line: str) -> str:
        variables = self.environment | {
            "PATH": f"{self.folder}:{os.environ['PATH']}",
            "LOGS": str(self.folder),
        }
        if line.startswith("psoup "):
            return Terminal(self.target, "main", variables).run(line)
        return run_in_shell(line, variables)


def run_in_shell(line: str, variables: Mapping[str, str]) -> str:
    """Return everything that a line of a shell prints."""
    done = subprocess.run(
        line,
        shell=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | dict(variables),
        check=False,
    )
    return done.stdout


def commands_under(heading: str) -> list[tuple[str, str]]:
    """Return the commands under a heading of the page, and what it shows for each."""
    (section,) = re.findall(
        rf"^## {heading}\n(.*?)(?=^## |\Z)", read("docs/runbook.md"), re.M | re.S
    )
    return [pair for block in blocks(section, "console") for pair in commands(block.text)]


def _holds(output: str, expected: str) -> bool:
    lines = iter(" ".join(line.split()) for line in output.splitlines())
    for shape in expected.splitlines():
        pattern = re.escape(" ".join(shape.split())).replace("…", ".*")
        if not any(re.fullmatch(pattern, line) for line in lines):
            return False
    return True
