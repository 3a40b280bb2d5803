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
NEW_COPIES = click.Path(dir_okay=False, path_type=Path)


@contextmanager
def opened(file: Path) -> Iterator[Copies]:
    """Open the copies of a file; raise a Problem for what the SDK reports as misuse."""
    try:
        with Copies(file) as copies:
            yield copies
    except (ValueError, TypeError, ModuleNotFoundError) as error:
        fail(str(error))


def connection_of(context: click.Context) -> Connection:
    connection: Connection = context.obj
    return connection
