"""The files of deploy/: their flags exist, and tools of this machine find them right."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
import tomllib
from pathlib import Path

import pytest

from client_sdk import Client
from psoup.cli.sources import run as run_sources
from psoup.engine.process import make_parser as engine_parser
from psoup.web.main import make_web_parser
from tests.conftest import ROOT
from tests.support.server.process import ServerProcess
from tests.support.system.processes import Process

DEPLOY = ROOT / "deploy"
_SECONDS = 60.0
FILES = (
    "Dockerfile",
    "compose.yml",
    "kubernetes/base/store.yaml",
    "kubernetes/several/engine.yaml",
    "systemd/psoup-server@.service",
    "systemd/psoup-engine@.service",
)


def flags() -> set[str]:
    actions = [*make_web_parser()._actions, *engine_parser()._actions]
    return {name for action in actions for name in action.option_strings}


@pytest.mark.parametrize("name", FILES)
def test_flags_of_server_and_engine_exist(name: str) -> None:
    text = (DEPLOY / name).read_text()
    # Those of Prometheus have a dot.
    used = set(re.findall(r'(?:"|- |psoup (?:server|engine) )(--[a-z][a-z-]+)(?![.a-z-])', text))
    assert used and used <= flags(), used - flags()


def test_flags_of_sources_exist() -> None:
    text = (DEPLOY / "systemd/psoup-source@.service").read_text()
    (line,) = re.findall(r"^ExecStart=.* source run (.*)$", text, re.M)
    options = {name for option in run_sources.params for name in option.opts}
    used = set(re.findall(r"--[a-z-]+", line))
    assert used and used <= options
    # The folder of the file is the one that the process may write to.
    folder = re.findall(r"^StateDirectory=(\S+)$", text, re.M)
    assert re.findall(r"--status %S/(\S+)/%i\.status", line) == folder


def test_every_stage_that_an_image_copies_from_is_built() -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    stages = re.findall(r"^FROM \S+ AS (\S+)$", text, re.M)
    assert set(re.findall(r"--from=(\S+)", text)) <= set(stages)
    assert {"client", "server", "engine"} <= set(stages)
    assert {"USER 10001", "STOPSIGNAL SIGTERM"} <= set(text.splitlines())


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="there is no systemd here")
@pytest.mark.parametrize("name", ["server", "engine", "source"])
def test_units_are_right(name: str, tmp_path: Path) -> None:
    # Units name a program that is not installed here; any other one stands for it.
    text = (DEPLOY / f"systemd/psoup-{name}@.service").read_text()
    unit = tmp_path / f"psoup-{name}@.service"
    unit.write_text(text.replace("/opt/psoup/bin/psoup", "/bin/true"))
    done = subprocess.run(
        ["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False
    )
    problems = [line for line in done.stderr.splitlines() if unit.name[:-9] in line]
    assert problems == []


def test_images_are_built_from_what_a_wheel_needs_and_nothing_else() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = project["tool"]["setuptools"]["packages"]["find"]["include"]
    needed = {"pyproject.toml", "setup.py", "constraints.txt", project["project"]["readme"]}
    needed |= {*project["project"]["license-files"], *(name.rstrip("*") for name in packages)}
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    assert "*" in lines
    assert {line[1:] for line in lines if line.startswith("!")} == needed


def test_images_have_what_their_processes_may_be_asked_for() -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    extras = [set(names.split(",")) for names in re.findall(r"'\.\[([a-z0-9,]+)\]'", text)]
    assert extras == [
        {"server", "web", "metrics", "otel", "s3"},
        {"engine", "metrics", "otel", "s3"},
    ]


@pytest.mark.process
def test_the_publisher_of_the_demo_goes_on_after_a_restart(
    shared_server: ServerProcess, tmp_path: Path
) -> None:
    compose = (DEPLOY / "compose.yml").read_text()
    assert "./publisher.py:/demo/publisher.py:ro" in compose
    command = [str(DEPLOY / "publisher.py"), shared_server.address]
    counts = [0]
    for _ in range(2):
        publisher = Process(command, tmp_path / "publisher.log")
        try:
            counts.append(publish_count(shared_server.address, counts[-1]))
        finally:
            publisher.kill()
    with Client(shared_server.address) as client:
        assert {row["sensor"] for row in client.invoke("hot")} == {"kitchen", "cellar", "roof"}


def publish_count(address: str, before: int) -> int:
    """Return how many rows there are once there are more than before."""
    deadline = time.monotonic() + _SECONDS
    with Client(address) as client:
        while True:
            counts = [s.row_count for s in client.streams() if s.name == "readings"]
            if sum(counts) > before:
                return sum(counts)
            assert time.monotonic() < deadline
            time.sleep(0.05)
