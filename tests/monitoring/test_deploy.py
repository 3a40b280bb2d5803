"""The files of deploy/: their flags exist, and tools of this machine find them right."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from psoup.cli.sources import run as run_sources
from psoup.engine.process import make_parser as engine_parser
from psoup.web.main import make_web_parser

DEPLOY = Path(__file__).parents[2] / "deploy"
FILES = (
    "Dockerfile",
    "compose.yml",
    "kubernetes/store.yaml",
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


@pytest.mark.skipif(
    importlib.util.find_spec("kubernetes_validate") is None,
    reason="pip install kubernetes-validate checks the manifests",
)
@pytest.mark.parametrize("version", ["1.29", "1.33", "1.37"])
def test_manifests_are_right(version: str) -> None:
    for name in ("store", "service", "network"):
        command = [sys.executable, "-m", "kubernetes_validate", "-k", version]
        subprocess.run([*command, str(DEPLOY / f"kubernetes/{name}.yaml")], check=True)
