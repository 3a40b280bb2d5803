"""Sessions of a page: its commands, a terminal that runs them, and outputs that can be compared."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from click.testing import CliRunner

from psoup.cli import cli
from tests.support.docs.markdown import blocks

# Commands over a file of copies that need no connection: they are run without one.
OFFLINE = ("keep", "rows", "query", "publish", "status", "changes", "pending")
NOWHERE = "127.0.0.1:1"


class Terminal:
    """A shell in the current folder that runs `psoup` in this process, with further `variables`."""

    def __init__(
        self, address: str, tenant: str, variables: Mapping[str, str] | None = None
    ) -> None:
        self._environment = {"PSOUP_TARGET": address, "PSOUP_TENANT": tenant, "COLUMNS": "200"}
        self._environment |= variables or {}

    def run(self, line: str) -> str:
        """Run one line and return what it prints. The line may hold quoted line breaks."""
        if not line.startswith("psoup "):
            environment = os.environ | self._environment
            done = subprocess.run(
                line, shell=True, capture_output=True, text=True, env=environment, check=False
            )
            return done.stdout
        words = shlex.split(line)[1:]
        environment = dict(self._environment)
        if words[0] == "copy" and words[1] in OFFLINE:
            environment["PSOUP_TARGET"] = NOWHERE
        result = CliRunner(env=environment).invoke(cli, words)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result.output


def commands(text: str) -> Iterator[tuple[str, str]]:
    """Yield each command of a session, and the lines shown under it."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command = re.match(r'(?:[^"\n]|"[^"]*")*\n', part)
        assert command, part
        yield command[0].strip(), part[command.end() :]


def settled(text: str) -> list[str]:
    """Return the lines without what differs from run to run: handles, times, work done."""
    text = re.sub(r"\b[0-9a-f]{32}\b", "(handle)", text)
    text = re.sub(r"^  .* computed on the spot.*$", "  (work)", text, flags=re.MULTILINE)
    text = re.sub(r"^\d+ bytes received$", "(bytes)", text, flags=re.MULTILINE)
    text = re.sub(r"\bfile-[0-9a-f]+", "file-…", text)
    return [" ".join(line.split()) for line in text.splitlines()]


def replay(page: str, terminal: Terminal) -> list[str]:
    """Run every session of a page, compare the outputs, and return the commands.

    `cat FILE` of a file that is not there writes what is shown. `…` at the end of a shown line
    stands for the rest of it, and a line that is `…` for any number of lines.
    """
    ran = []
    for block in blocks(page, "console"):
        for line, expected in commands(block.text):
            name = line.removeprefix("cat ")
            if name != line and not Path(name).exists():
                Path(name).write_text(expected)
            output = terminal.run(line)
            assert _like(settled(expected), settled(output)), f"{line}\n{output}"
            ran.append(line)
    return ran


def _like(expected: list[str], output: list[str]) -> bool:
    pattern = "".join(
        r"(?:.*\n)*" if line == "…" else re.escape(line).replace("…", ".*") + r"\n"
        for line in expected
    )
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in output)) is not None
