"""psoup config and psoup health."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from click.testing import CliRunner

from psoup.cli import cli
from tests.support.server.process import ServerProcess

CONTENT = '[server]\nmemory = "1GB"\n[engine]\nmaster = "local[2]"\n[log]\nlog = "json"\n'


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "psoup.toml"
    path.write_text(CONTENT)
    return path


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(cli, arguments)
    return result.exit_code, result.output


def test_a_file_that_is_right(file: Path) -> None:
    code, output = run("config", "check", str(file))
    assert (code, output) == (0, f"{file} is right: 4 settings\n")


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("[server]\nmemry = 1\n", "did you mean memory?"),
        ("[engine]\nmemory = '1GB'\n", "[engine] memory: there is no such key"),
        ("[log]\nlogs = 'json'\n", "[log] logs: there is no such key"),
        ("[engine]\nstep-bytes = 'x'\n", "[engine] step-bytes"),
    ],
)
def test_a_file_that_is_wrong(file: Path, line: str, problem: str) -> None:
    file.write_text(line)
    code, output = run("config", "check", str(file))
    assert code == 2 and problem in output and str(file) in output


def test_where_values_come_from(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PSOUP_SERVER_CALLS", "77")
    code, output = run("config", "show", "server", "--json")
    assert code == 0
    values = json.loads(output)
    assert values["memory"] == {"value": "1GB", "from": "psoup.toml [server] memory"}
    assert values["calls"] == {"value": "77", "from": "PSOUP_SERVER_CALLS"}
    assert values["port"] == {"value": "0", "from": "default"}
    assert values["web"] == {"value": "", "from": "default"}
    code, output = run("config", "show", "engine")
    assert code == 0 and "local[2]" in output and "memory" not in output.split()


@pytest.mark.process
def test_health_says_whether_a_server_is_ready(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "store", "--drain-delay", "600")
    target = ("--target", server.address)
    assert run(*target, "health") == (0, f"the server at {server.address} is ready\n")
    assert run(*target, "health", "--live")[0] == 0
    server.send_signal()
    while (code := run(*target, "health")[0]) == 0:
        pass
    assert code == 1 and run(*target, "health", "--live")[0] == 0
    server.send_signal(signal.SIGKILL)
    server.wait()
    assert run(*target, "health")[0] == 3
