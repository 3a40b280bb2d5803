"""The inputs of psoup publish: files, folders, patterns, pipes."""

from __future__ import annotations

import glob
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from psoup.cli.problems import fail
from psoup.source.readers import SUFFIXES, Options

STANDARD_INPUT = ("-", "/dev/stdin", "/dev/fd/0")


@dataclass(frozen=True, slots=True)
class Input:
    """A file; or, if it `is_live`, a pipe or a file that is followed."""

    path: Path
    is_live: bool = False
    is_followed: bool = False

    @property
    def is_standard(self) -> bool:
        return str(self.path) in STANDARD_INPUT


def expand(names: Sequence[str], options: Options, follow: bool) -> list[Input]:
    """Return the inputs that names stand for. Fails for a name that stands for nothing."""
    inputs = [entry for name in names for entry in _expand(name, options, follow)]
    if len(inputs) > 1 and any(entry.is_live for entry in inputs):
        fail("standard input, a FIFO and --follow go alone: start a command for each")
    return inputs


def _expand(name: str, options: Options, follow: bool) -> list[Input]:
    path = Path(name)
    if name in STANDARD_INPUT:
        if follow:
            fail("--follow needs a file with a name; standard input is read to its end anyway")
        return [Input(path, is_live=True)]
    if follow:
        if path.is_dir() or not path.parent.is_dir():
            fail(f"--follow {name}: give one file")
        return [Input(path, is_live=True, is_followed=True)]
    if path.is_dir():
        return [Input(file) for file in _files(path, options)]
    if os.path.exists(name):
        return [Input(path, is_live=not stat.S_ISREG(os.stat(name).st_mode))]
    matches = [Path(match) for match in sorted(glob.glob(name)) if os.path.isfile(match)]
    if not matches:
        pattern = "matches no file" if glob.has_magic(name) else "does not exist"
        fail(f"{name} {pattern}")
    return [Input(match) for match in matches]


def _files(folder: Path, options: Options) -> list[Path]:
    """Return the files of a folder in the order of their names, without hidden ones."""
    files = sorted(file for file in folder.iterdir() if file.is_file())
    files = [file for file in files if not file.name.startswith(".")]
    if not options.format:
        files = [file for file in files if SUFFIXES.keys() & {s.lower() for s in file.suffixes}]
    if not files:
        fail(f"{folder} has no file that ends in {', '.join(SUFFIXES)} (and .gz)")
    return files
