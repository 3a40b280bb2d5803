"""docs/security.md: its session runs as it is written, with a server of its own."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.docs.markdown import ROOT, blocks, read
from tests.support.server.process import ServerProcess

pytestmark = pytest.mark.process

PAGE = read("docs/security.md")
SECTIONS = [
    *("Threat model", "Identity", "Permission", "Row policies", "Quotas", "Audit"),
    *("What may still be seen", "Measured"),
]


def test_the_page_has_its_sections() -> None:
    assert re.findall(r"^## (.*)$", PAGE, re.MULTILINE) == SECTIONS


def _commands() -> Iterator[tuple[str, list[str]]]:
    """Each command of the page, and the lines shown under it."""
    for block in blocks(PAGE.split("### Keys")[0], "console"):
        for part in block.text.split("$ ")[1:] if block.text.startswith("$ ") else ():
            command, *shown = part.splitlines()
            yield command, shown


class Shell:
    """A terminal in a folder: what is exported stays, `psoup` is this checkout's."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.exported: dict[str, str] = {}
        self.server: ServerProcess | None = None

    def run(self, command: str) -> str:
        words = shlex.split(command)
        if words[0] == "export":
            self.exported |= dict(word.split("=", 1) for word in words[1:])
            return ""
        if words[:2] == ["psoup", "serve"]:
            options = [str(self.folder / w) if (self.folder / w).exists() else w for w in words[3:]]
            self.server = ServerProcess(self.folder / words[2], *options)
            self.exported["PSOUP_TARGET"] = self.server.address
            return ""
        return self._bash(command)

    def _bash(self, command: str) -> str:
        psoup = f'psoup() {{ "{sys.executable}" -m psoup.cli "$@"; }}'
        done = subprocess.run(
            ["bash", "-c", f"{psoup}\n{command}"],
            cwd=self.folder,
            env={**os.environ, **self.exported, "PYTHONPATH": str(ROOT), "COLUMNS": "200"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=60,
        )
        return done.stdout


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
def test_the_session(tmp_path: Path) -> None:
    shell, ran = Shell(tmp_path), 0
    try:
        for command, shown in _commands():
            said = _settled(shell.run(command))
            assert not shown or all(_settled(line) in said for line in shown), (command, said)
            assert shown or "psoup:" not in said, (command, said)
            ran += 1
    finally:
        if shell.server is not None:
            shell.server.stop()
    assert ran == 16
    assert (tmp_path / "root.key").stat().st_mode & 0o077 == 0


def _settled(text: str) -> str:
    """Without the digits of keys, and with single spaces."""
    return " ".join(re.sub(r"\b[0-9a-f]{16}\b", "ID", text).split())
