"""The FILE of the copy commands."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from client_sdk import Copies
from psoup.cli.connection import Connection
from psoup.cli.problems import fail

# The file must exist: a misspelled name must not create a new one.
COPIES = click.Path(exists=True, dir_okay=False, path_type=Path)
# The name in the context of the key that --key-file has.
KEY = "psoup.copy.key"
NEW_COPIES = click.Path(dir_okay=False, path_type=Path)


@contextmanager
def opened(file: Path, most_bytes: int | None = None) -> Iterator[Copies]:
    """Open the copies of a file; raise a Problem for what the SDK reports as misuse."""
    try:
        key = click.get_current_context().meta.get(KEY)
        with Copies(file, most_bytes=most_bytes, key=key) as copies:
            yield copies
    except (ValueError, TypeError, ModuleNotFoundError) as error:
        fail(str(error))


def connection_of(context: click.Context) -> Connection:
    connection: Connection = context.obj
    return connection


def streams_with_edits(copies: Copies) -> set[str]:
    """Return the streams whose queued rows a copy of the file shows."""
    streams = [copies[name].stream for name in copies if copies[name].edits]
    return {stream for stream in streams if stream is not None}


def when_shown(stream: str, shown_streams: set[str]) -> str:
    """Return when queued rows are shown, for people."""
    if stream.lower() in shown_streams:
        return "copies kept with --edits show them now"
    return "copies show them after a sync"
