"""The pages about security: their session runs as written, with a server of its own."""

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
from click.testing import CliRunner

from psoup.cli import cli
from tests.support.docs.markdown import ROOT, blocks, read
from tests.support.server.process import ServerProcess

pytestmark = pytest.mark.process

PAGE = read("docs/reference/security.md")
SECTIONS = [
    *("Threat model", "Identity", "Permission", "Row policies", "Quotas", "Audit"),
    *("Security events", "What may still be seen", "Measured"),
]
WALK = read("docs/how-to/tls-and-access-keys.md")
OFFLINE = ("keep", "rows", "publish", "status")
NOWHERE = {"PSOUP_TARGET": "127.0.0.1:1", "PSOUP_TOKEN_FILE": None, "PSOUP_TLS_CA": None}


def test_the_page_has_its_sections() -> None:
    assert re.findall(r"^## (.*)$", PAGE, re.MULTILINE) == SECTIONS


def _commands() -> Iterator[tuple[str, list[str]]]:
    """Each command of the walk, and the lines shown under it."""
    for block in blocks(WALK, "console"):
        for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
            command, *expected = part.splitlines()
            yield command, expected


class Shell:
    """A terminal in a folder: what is exported stays, `psoup` is this checkout's."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.exported: dict[str, str] = {"COLUMNS": "200"}
        self.server: ServerProcess | None = None

    def run(self, command: str, output: list[str]) -> str:
        words = [] if "<(" in command else shlex.split(command)
        if words[:1] == ["export"]:
            self.exported |= dict(word.split("=", 1) for word in words[1:])
            return ""
        if words[:1] == ["cat"]:
            (self.folder / words[1]).write_text("\n".join([*output, ""]))
            return "\n".join(output)
        if words[:2] == ["psoup", "serve"]:
            options = [str(self.folder / w) if (self.folder / w).exists() else w for w in words[3:]]
            self.server = ServerProcess(self.folder / words[2], *options)
            self.exported["PSOUP_TARGET"] = self.server.address
            return ""
        if words[:1] == ["psoup"] and "$(" not in command:
            return self._psoup(words[1:])
        return self._bash(command)

    def _psoup(self, words: list[str]) -> str:
        """Runs it in this process. What needs no connection has none."""
        offline = words[0] == "copy" and words[1] in OFFLINE
        result = CliRunner(env={**self.exported, **(NOWHERE if offline else {})}).invoke(cli, words)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result.output

    def _bash(self, command: str) -> str:
        psoup = f'psoup() {{ "{sys.executable}" -m psoup.cli "$@"; }}'
        python = f'python() {{ "{sys.executable}" "$@"; }}'
        done = subprocess.run(
            ["bash", "-c", f"{psoup}\n{python}\n{command}"],
            cwd=self.folder,
            env={**os.environ, **self.exported, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=240,
        )
        return done.stdout


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
def test_the_walk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for block in blocks(WALK, "python"):
        Path(block.words).write_text(block.text)
    shell, ran = Shell(tmp_path), list[str]()
    try:
        for command, expected in _commands():
            output = shell.run(command, expected)
            assert _matches(expected, output), (command, output)
            assert expected or "psoup:" not in output, (command, output)
            assert _orders(output) == _orders("\n".join(expected)), (command, output)
            ran += re.findall(r"psoup (?:--\S+ \S+ )*(\w+)", command)
    finally:
        if shell.server is not None:
            shell.server.stop()
    assert {"key", "serve", "grant", "policy", "quota", "copy", "audit", "ask"} <= set(ran)
    for secret in ("root.key", "ann.key", "bob.key"):
        assert (tmp_path / secret).stat().st_mode & 0o077 == 0
    assert not re.search("1970", shell.run("psoup --token-file root.key audit", []))


def _matches(expected: list[str], output: str) -> bool:
    """Whether the lines that are shown stand in lines that came, in that order."""
    lines = iter(map(_settled, output.splitlines()))
    return all(any(_settled(line) in came for came in lines) for line in expected)


def _orders(text: str) -> list[str]:
    """The rows of orders among lines: all that come must be shown, and no other."""
    return [_settled(line) for line in text.splitlines() if re.match(r"\d+\s+(north|south)", line)]


def _settled(text: str) -> str:
    """Without the digits of keys, and with single spaces."""
    return " ".join(re.sub(r"\b[0-9a-f]{16}\b", "ID", text).split())
