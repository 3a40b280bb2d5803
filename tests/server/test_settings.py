"""The command line, and servers that can't start."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from psoup.command_help import parse_size
from psoup.server.main import main
from psoup.server.options import parse_arguments
from tests.support.server.process import ROOT, ServerProcess


@pytest.mark.parametrize(
    ("text", "size"),
    [("512MB", 512 << 20), ("1 GiB", 1 << 30), ("4096", 4096), ("16k", 16 << 10), ("1b", 1)],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "much", "-1MB", "1.5GB", "1TB"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ValueError):
        parse_size(text)


def test_options_become_settings() -> None:
    settings = parse_arguments(
        ["--store", "x", "--port", "7", "--memory", "1GB", "--durability", "none"]
    )
    assert (settings.store, settings.port) == (Path("x"), 7)
    assert (settings.memory, settings.durability) == (1 << 30, "none")


def test_a_folder_that_is_no_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "letter.txt").write_text("dear diary")
    assert main(["--store", str(tmp_path)]) == 1
    assert "not a store" in capsys.readouterr().err


@pytest.mark.process
def test_a_port_that_is_taken(shared_server: ServerProcess, tmp_path: Path) -> None:
    port = shared_server.address.rpartition(":")[2]
    command = [sys.executable, "-m", "psoup.server", "--store", str(tmp_path / "s"), "--port", port]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 1
    assert "can't start" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_the_server_runs_without_spark() -> None:
    code = (
        "import sys, psoup.server.main; "
        "print([m for m in ('pyspark', 'py4j', 'delta', 'pandas') if m in sys.modules])"
    )
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert ended.stdout.strip() == "[]", ended.stderr
