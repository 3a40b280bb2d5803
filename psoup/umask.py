"""The umask of a process that writes a store's files, or copies of its rows.

By default no other user of the machine may read them. The umask holds for the whole process, so
files of deltalake, SQLite and Spark have it too.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

OPTION = "--umask"
HELP = (
    "the rights that new files withhold from others, octal. By default a store keeps its umask; a "
    "new store is private (077). 007 with a setgid folder lets its group in"
)
# Child processes and Spark's executors read the umask from this environment variable.
VARIABLE = "PSOUP_UMASK"

_PRIVATE = 0o077


def parse_umask(text: str) -> int:
    """Return the umask that these octal digits name. Raise ArgumentTypeError for anything else.

    The owner keeps all rights: without them the process could not read its own files.
    """
    try:
        umask = int(text, 8)
    except ValueError:
        umask = -1
    if not 0 <= umask <= _PRIVATE:
        raise argparse.ArgumentTypeError(f"{text!r}: write octal digits from 000 to 077, as 007")
    return umask


def set_umask(umask: int | None = None, store: Path | None = None) -> None:
    """Set the umask of this process: `umask`, else that of the environment, else the one that the
    store was made with, else a private one. Raise ArgumentTypeError if the environment's is
    malformed."""
    if umask is None and (text := os.environ.get(VARIABLE)):
        umask = parse_umask(text)
    os.umask(_store_umask(store) if umask is None else umask)


def current_umask() -> int:
    """Return the umask of this process. Call it before there are other threads."""
    # The umask can only be read by setting it. Files made in between would be private.
    umask = os.umask(_PRIVATE)
    os.umask(umask)
    return umask


def _store_umask(store: Path | None) -> int:
    """Return the umask that a store was made with; a private one if there is no store yet."""
    if store is None:
        return _PRIVATE
    # The operator may have made the store's own folder, with any mode; a server made the log.
    try:
        return ~(store / "log").stat().st_mode & _PRIVATE
    except OSError:
        return _PRIVATE
