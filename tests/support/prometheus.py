"""A real Prometheus: that of the machine, or Debian's package, unpacked and not installed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

_START_SECONDS = 60.0


def find_program(name: str) -> str:
    """Return the path of `prometheus` or `promtool`; skip the test if there is none to be had."""
    if program := shutil.which(name):
        return program
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    program_file = cache / "psoup" / "prometheus" / "usr" / "bin" / name
    if not program_file.exists():
        _fetch(program_file.parents[2])
    if not program_file.exists():
        pytest.skip("no Prometheus on this machine, and none could be fetched with apt-get")
    return str(program_file)


def _fetch(place: Path) -> None:
    if not (shutil.which("apt-get") and shutil.which("dpkg")):
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent) as folder:
        download = ["apt-get", "download", "-qq", "prometheus"]
        subprocess.run(download, cwd=folder, check=False, capture_output=True)
        for package in Path(folder).glob("*.deb"):
            subprocess.run(["dpkg", "--extract", package, f"{folder}/root"], check=True)
            shutil.move(f"{folder}/root", place)


class Prometheus:
    """A running Prometheus, and the file with what it scrapes."""

    def __init__(self, address: str, targets: Path) -> None:
        self.address = address
        self._targets = targets

    def watch(self, jobs: Mapping[str, str]) -> None:
        """Scrape an address for each job from now on, and no others."""
        _write_targets(self._targets, jobs)

    def get(self, path: str, **parameters: str) -> Any:
        url = f"http://{self.address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=_START_SECONDS) as response:
            return json.load(response)["data"]

    def query(self, expression: str) -> list[Any]:
        """Return the result of a query. Raise HTTPError if Prometheus does not understand it."""
        result: list[Any] = self.get("query", query=expression)["result"]
        return result

    def wait_for(self, expression: str) -> list[Any]:
        """Return the result of a query once it has one."""
        deadline = time.monotonic() + _START_SECONDS
        while True:
            if result := self.query(expression):
                return result
            assert time.monotonic() < deadline, f"Prometheus has nothing for {expression}"
            time.sleep(0.2)

    def wait_for_end(self, expression: str) -> None:
        """Return once a query has no result, although every target answers."""
        deadline = time.monotonic() + _START_SECONDS
        while self.query("up == 0") or self.query(expression):
            assert time.monotonic() < deadline, f"Prometheus still has {self.query(expression)}"
            time.sleep(0.2)


def _write_targets(file: Path, jobs: Mapping[str, str]) -> None:
    groups = [{"targets": [address], "labels": {"job": job}} for job, address in jobs.items()]
    # Replaced, never written into: Prometheus may be reading it.
    fresh = file.with_suffix(".fresh")
    fresh.write_text(json.dumps(groups))
    fresh.rename(file)


@contextmanager
def running_prometheus(folder: Path, jobs: Mapping[str, str], rules: Path) -> Iterator[Prometheus]:
    """Run a Prometheus that scrapes an address for each job, every second."""
    program = find_program("prometheus")
    targets = folder / "targets.json"
    _write_targets(targets, jobs)
    discovery = {"files": [str(targets)], "refresh_interval": "1s"}
    # Prometheus reads YAML, of which JSON is a part.
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(rules)],
        "scrape_configs": [{"job_name": "psoup", "file_sd_configs": [discovery]}],
    }
    (folder / "prometheus.yml").write_text(json.dumps(config))
    with (folder / "prometheus.log").open("wb") as output:
        process = subprocess.Popen(
            [
                program,
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                "--web.listen-address=127.0.0.1:0",
            ],
            stdout=output,
            stderr=output,
        )
    try:
        yield Prometheus(_address_of(folder / "prometheus.log"), targets)
    finally:
        process.terminate()
        process.wait()


def _address_of(log: Path) -> str:
    """Return the address that Prometheus has chosen, once it says so."""
    deadline = time.monotonic() + _START_SECONDS
    while True:
        text = log.read_text()
        for line in text.splitlines():
            if "Listening on" in line and "address=" in line:
                return line.rpartition("address=")[2].strip()
        assert time.monotonic() < deadline, text
        time.sleep(0.1)
