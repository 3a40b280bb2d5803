"""What a random run did, as a Python program that does it again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

_HEADER = '''"""Run from the repository with the address of an empty store's server."""
import datetime, sys
from decimal import Decimal
from client_sdk import Client
nan, inf = float("nan"), float("inf")
client = Client(sys.argv[1])
'''
_SHOWN = 12
_WIDTH = 300


class Story:
    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.lines: list[str] = []

    def call(self, verb: str, *values: Any, into: str = "", **options: Any) -> None:
        """Record a call of the client; a value of type `Name` stands for the result of an earlier
        call."""
        named = [f"{name}={value!r}" for name, value in options.items() if value is not None]
        arguments = ", ".join([*(repr(value) for value in values), *named])
        self.lines.append(f"{into + ' = ' if into else ''}client.{verb}({arguments})")

    def note(self, text: str) -> None:
        self.lines.append(f"# {text}")

    def tell(self, folder: Path, problem: str) -> str:
        """Write the whole program into `folder`; return the problem with the end of the program."""
        path = folder / f"seed-{self.seed}.py"
        path.write_text(_HEADER + "\n".join(self.lines) + "\n")
        excerpt = "\n".join(line[:_WIDTH] for line in self.lines[-_SHOWN:])
        return f"seed {self.seed}: {problem}\nthe whole run is in {path}; it ends\n{excerpt}"


class Name(str):
    """A variable of the program."""

    def __repr__(self) -> str:
        return str(self)
