"""Programs forked from a process that has loaded the server already, which saves most of the
processor time of a start. Each is a process of its own and can be killed like any other."""

from __future__ import annotations

import multiprocessing
import os
import runpy
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import Any

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["tests.support.server.loaded"])


def fork_program(
    arguments: list[str], folder: Path, environment: Mapping[str, str], output: int, errors: int
) -> BaseProcess:
    """Start what `python -m` runs with these arguments; `output` and `errors` are open files."""
    program = _Program(arguments, folder, dict(environment), (output, errors))
    process = _context.Process(target=program, daemon=True)
    process.start()
    return process


@dataclass(frozen=True)
class _Program:
    """What a forked process does."""

    arguments: list[str]
    folder: Path
    environment: dict[str, str]
    files: tuple[Any, ...]

    def __reduce__(self) -> tuple[Any, ...]:
        """Send the open files along."""
        files = tuple(map(DupFd, self.files))
        return _Program, (self.arguments, self.folder, self.environment, files)

    def __call__(self) -> None:
        for number, file in enumerate(self.files, 1):
            os.dup2(file.detach(), number)
        os.chdir(self.folder)
        os.environ.clear()
        os.environ.update(self.environment)
        sys.argv = self.arguments
        runpy.run_module(self.arguments[0], run_name="__main__", alter_sys=True)
