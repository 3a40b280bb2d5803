"""The TypeScript client, built from what is in the repository, and driven from here."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from client_sdk import Answer, Client
from tests.conftest import ROOT

SOURCE = ROOT / "examples" / "typescript"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LEAST_NODE = 20
_NO_NETWORK = (
    r"ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ENETUNREACH|ENOTCACHED|E40[13]"
)


def build(folder: Path) -> Path:
    """Installs, generates and compiles in `folder`; if the tools are missing the test skips."""
    npm = _needed("npm")
    _check_node(_needed("node"))
    if importlib.util.find_spec("grpc_tools") is None:
        pytest.skip("needs grpcio-tools")
    generated = shutil.ignore_patterns("node_modules", "build", "generated")
    target = shutil.copytree(SOURCE, folder / "examples" / "typescript", ignore=generated)
    shutil.copytree(ROOT / "proto", folder / "proto")
    patience = ("--fetch-retries=1", "--fetch-retry-mintimeout=1000")
    installed = _run(target, npm, "ci", "--prefer-offline", "--loglevel=error", *patience)
    if installed.returncode and re.search(_NO_NETWORK, installed.stdout):
        pytest.skip(f"npm can't fetch its packages: {installed.stdout[-300:]}")
    assert installed.returncode == 0, installed.stdout
    built = _run(target, npm, "run", "build")
    assert built.returncode == 0, built.stdout
    return target


def unit_tests(target: Path) -> subprocess.CompletedProcess[str]:
    return _run(target, _needed("npm"), "test")


def _needed(tool: str) -> str:
    path = shutil.which(tool)
    if path is None:
        pytest.skip(f"needs {tool}")
    return path


def _check_node(node: str) -> None:
    version = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout
    if int(version.lstrip("v").split(".")[0]) < _LEAST_NODE:
        pytest.skip(f"needs node {_LEAST_NODE} or later, not {version.strip()}")


def _run(target: Path, *command: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PROTOC": f"{sys.executable} -m grpc_tools.protoc"}
    return subprocess.run(
        command,
        cwd=target,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


class Refused(Exception):
    """The command failed; what it said."""


@dataclass(frozen=True)
class CopyAnswer:
    """Rows as the client shows them, and what it says of its copy."""

    rows: list[list[str | None]]
    summary: dict[str, Any]

    @property
    def now(self) -> datetime | None:
        return instant(self.summary["now"])


class Driver:
    """One Node process that runs command after command, as the command line would."""

    def __init__(self, target: Path) -> None:
        self._process = subprocess.Popen(
            ["node", "build/test/driver.js"],
            cwd=target,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *arguments: object) -> list[str]:
        """The lines it wrote. Raises Refused."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps([str(argument) for argument in arguments]) + "\n")
        self._process.stdin.flush()
        lines: list[str] = []
        for line in self._process.stdout:
            if line.startswith("exit "):
                if line != "exit 0\n":
                    raise Refused("".join(lines))
                return [argument.rstrip("\n") for argument in lines]
            lines.append(line)
        raise AssertionError(f"the driver ended: {lines}")

    def rows_after(self, command: str, path: Path, *options: object) -> CopyAnswer:
        *rows, summary = map(json.loads, self.run(command, path, "--json", *options))
        return CopyAnswer(rows, summary)

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(timeout=120)
        self._process.stdout.close()


def instant(micros: str | None) -> datetime | None:
    return None if micros is None else EPOCH + timedelta(microseconds=int(micros))


def assert_same(printed: CopyAnswer, client: Client, handle: bytes) -> Answer:
    """The copy's rows are those of a fresh answer at its NOW, in order and to the last bit."""
    now = printed.now
    answer = client.invoke(handle, as_of=now, knowledge="today" if now else "then")
    kinds = [column.type for column in answer.columns]
    rows = [[_value(text, kind) for text, kind in zip(r, kinds, strict=True)] for r in printed.rows]
    assert list(map(_exact, rows)) == [_exact(list(row.values())) for row in answer.rows]
    return answer


def _exact(row: Sequence[object]) -> list[str]:
    """Tells −0.0 from 0.0 and 1.50 from 1.5, and NaN not from itself."""
    return [repr(value) for value in row]


def _value(text: str | None, kind: str) -> object:
    if text is None:
        return None
    match kind.split("(")[0]:
        case "BOOLEAN":
            return text == "true"
        case "BIGINT":
            return int(text)
        case "DOUBLE":
            return float(text)
        case "DECIMAL":
            return Decimal(text)
        case "TIMESTAMP":
            return instant(text)
        case "DATE":
            return date.fromisoformat(text)
    return text
