"""The load generator in Go (`load_go`), built if Go is installed, and what it measures."""

from __future__ import annotations

import json
import shutil
import subprocess
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_SOURCE = Path(__file__).parent / "load_go"
_BUILD_SECONDS = 900
_MIN_CALLS = 300


@dataclass(frozen=True)
class Requests:
    """Calls of one kind: serialized requests of a method, or a statement and its arguments."""

    method: str = ""
    requests: Sequence[bytes] = ()
    sql: str = ""
    arguments: Sequence[Sequence[str]] = ()

    @property
    def json(self) -> str:
        encoded = [b64encode(request).decode() for request in self.requests]
        return json.dumps(
            {
                "method": self.method,
                "requests": encoded,
                "sql": self.sql,
                "arguments": [*map(list, self.arguments)],
            }
        )


@dataclass(frozen=True)
class Opponent:
    """A server under load. `processor` gives the seconds of processor time that its processes have
    used."""

    kind: str
    target: str
    processor: Callable[[], Mapping[int, float]]

    def used_since(self, before: Mapping[int, float]) -> float:
        """Return the seconds used since then. A process that has ended was one of earlier calls:
        those of these calls stay until the load generator ends."""
        now = self.processor().items()
        return sum(seconds - before.get(pid, 0.0) for pid, seconds in now)


@dataclass(frozen=True)
class Load:
    """What came out of some calls."""

    calls: int
    rate: float
    processor_ms: float
    nbytes: float
    p50_ms: float
    p99_ms: float


def build(folder: Path) -> Path | None:
    """Return the program; None if Go is missing, or its modules can't be had."""
    if shutil.which("go") is None:
        return None
    program = folder / "load_go"
    try:
        built = subprocess.run(
            ["go", "build", "-o", str(program), "."],
            cwd=_SOURCE,
            capture_output=True,
            text=True,
            timeout=_BUILD_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None
    return None if built.returncode else program


@dataclass(frozen=True)
class Generator:
    """Runs the program, in a folder for its files."""

    program: Path
    folder: Path

    def load(
        self, opponent: Opponent, work: Requests, clients: int, seconds: float, max_calls: int
    ) -> Load:
        """Call for some seconds, at most `max_calls` times for each client, and at least
        _MIN_CALLS times in all if that allows it."""
        path = self.folder / "work.json"
        path.write_text(work.json)
        options = {
            "kind": opponent.kind,
            "target": opponent.target,
            "work": path,
            "clients": clients,
            "seconds": seconds,
            "least": min(max_calls, -(-_MIN_CALLS // clients)),
            "calls": max_calls,
        }
        with subprocess.Popen(
            [self.program, *(f"-{name}={value}" for name, value in options.items())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdin is not None and process.stdout is not None
            if process.stdout.readline().strip() != "ready":
                raise RuntimeError(f"the load generator failed: {options}")
            before = opponent.processor()
            process.stdin.write("\n")
            process.stdin.flush()
            line = process.stdout.readline()
            used = opponent.used_since(before)
        if not line:
            raise RuntimeError(f"the load generator failed: {options}")
        result: dict[str, Any] = json.loads(line)
        calls = result["calls"]
        return Load(
            calls,
            calls / result["seconds"],
            used / calls * 1e3,
            result["bytes"] / calls,
            result["p50_ms"],
            result["p99_ms"],
        )
