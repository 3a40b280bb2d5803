"""The FILE of the copy commands."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from client_sdk import Copies
from psoup.cli.connection import Connection
from psoup.cli.problems import fail

# One that is there: a name that was misspelled must not become a new file.
COPIES = click.Path(exists=True, dir_okay=False, path_type=Path)
NEW_COPIES = click.Path(dir_okay=False, path_type=Path)


@contextmanager
def opened(file: Path) -> Iterator[Copies]:
    """The copies of a file; what the SDK calls misuse is wrong usage."""
    try:
        with Copies(file) as copies:
            yield copies
    except (ValueError, TypeError, ModuleNotFoundError) as error:
        fail(str(error))


def connection_of(context: click.Context) -> Connection:
    found: Connection = context.obj
    return found
