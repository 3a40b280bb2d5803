"""psoup erase: remove the rows of a person for good, and say when they are off the disk."""

from __future__ import annotations

import math
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from client_sdk import Stream
from psoup.cli.connection import Connection
from psoup.cli.output import as_json, counted, echo, grid, note
from psoup.cli.problems import fail, refuse
from psoup.cli.serve import require
from psoup.umask import set_umask

if TYPE_CHECKING:
    from psoup.store.erasure import ErasureStatus


@click.command()
@click.argument("target", metavar="STREAM|STORE")
@click.option(
    "--key",
    "keys",
    multiple=True,
    metavar="VALUE",
    help="The stream key, or `column=value` for each of its columns; - reads one line of standard "
    "input.",
)
@click.option(
    "--where",
    metavar="COLUMN=VALUE",
    help="Rows that have this value, in a stream without a key; - reads standard input.",
)
@click.option("--status", is_flag=True, help="Show what is erased in the folder STORE.")
@click.option(
    "--list",
    "list_",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write the erasures of the folder STORE to a file, for `psoup restore --erased`.",
)
@click.option("--json", "as_json_", is_flag=True, help="Print the status as JSON, for programs.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@click.pass_obj
def erase(
    connection: Connection,
    target: str,
    keys: tuple[str, ...],
    where: str | None,
    status: bool,
    list_: Path | None,
    as_json_: bool,
    yes: bool,
) -> None:
    """Erase all rows of a stream key, from answers, copies and disk. This can't be undone.

    Answers lack the rows at once, also those of the past; copies lose them at their next sync. For
    90 days no row of the key is accepted. --status reads the store's folder and says what is left
    on disk; with an erasure that is not done the exit code is 1. Back-ups keep the rows: put what
    --list writes beside them.

    \b
    psoup erase customers --key 4711
    psoup erase visits --key place=A1 --key visitor=-
    psoup erase orders --where customer=4711
    psoup erase --status ./store
    psoup erase --list erased.json ./store
    """
    if status or list_ is not None:
        if keys or where or (status and list_ is not None):
            fail("--status and --list take the folder of a store, and nothing else")
        _show(Path(target), as_json_) if list_ is None else _list(Path(target), list_)
        return
    if bool(keys) == (where is not None):
        fail("give --key, or --where in a stream without a key")
    with connection.client() as client:
        stream = client.stream(target)
        names = [column.name for column in stream.columns]
        condition = _condition(stream, names, keys) if keys else _condition_of(stream, names, where)
        if not yes:
            question = f"Erase these rows of {stream.name} for good?"
            click.confirm(question, abort=True, err=True)
        definition = client.define(f"ERASE FROM {_name(stream.name)} WHERE {condition}")
    note(f"erased from {stream.name}", *definition.notes)


def _condition(stream: Stream, names: list[str], keys: tuple[str, ...]) -> str:
    key = list(stream.key)
    if not key:
        fail(f"{stream.name} has no stream key: give --where column=value")
    if len(key) == 1 and len(keys) == 1 and not keys[0].startswith(f"{key[0]}="):
        pairs = {key[0]: keys[0]}
    else:
        pairs = dict(_pair(text, "--key") for text in keys)
    if set(pairs) != set(key) or len(pairs) != len(keys):
        fail(f"--key has to name each column of the stream key once: {', '.join(key)}")
    return " AND ".join(_equality(stream, name, value) for name, value in pairs.items())


def _condition_of(stream: Stream, names: list[str], where: str | None) -> str:
    name, value = _pair(where or "", "--where")
    if stream.key:
        fail(f"{stream.name} has a stream key: give --key")
    if name not in names:
        fail(f"{stream.name} has no column {name}")
    return _equality(stream, name, value)


def _pair(text: str, option: str) -> tuple[str, str]:
    name, equal, value = text.partition("=")
    if not equal:
        fail(f"{option} is written column=value")
    return name, value


def _equality(stream: Stream, name: str, value: str) -> str:
    kind = next(str(column.type) for column in stream.columns if column.name == name)
    text = sys.stdin.readline().rstrip("\n") if value == "-" else value
    return f"{_name(name)} = {_literal(kind, text)}"


def _literal(kind: str, text: str) -> str:
    """Return a value as SQL writes it."""
    quoted = "'" + text.replace("'", "''") + "'"
    if kind == "TEXT":
        return quoted
    if kind in ("TIMESTAMP", "DATE"):
        return f"{kind} {quoted}"
    if kind == "BOOLEAN":
        if text.upper() not in ("TRUE", "FALSE"):
            _bad_value(kind)
        return text.upper()
    if kind == "DOUBLE" and text.lower() in _NO_NUMBERS:
        return f"CAST('{_NO_NUMBERS[text.lower()]}' AS DOUBLE)"
    number = _NUMBERS.get(kind, _DECIMAL)
    if not number.fullmatch(text) or math.isinf(float(text)):
        _bad_value(kind)
    return text


_DECIMAL = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)")
_NUMBERS = {
    "BIGINT": re.compile("[+-]?[0-9]+"),
    "DOUBLE": re.compile(rf"{_DECIMAL.pattern}([eE][+-]?[0-9]+)?"),
}
# Values of DOUBLE that SQL has no number for, and how it writes them.
_NO_NUMBERS = {
    "nan": "NaN",
    "inf": "Infinity",
    "infinity": "Infinity",
    "-inf": "-Infinity",
    "-infinity": "-Infinity",
}


def _bad_value(kind: str) -> NoReturn:
    # Without the value, which must not be in the log of a terminal.
    fail(f"the value is not a {kind}")


def _name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


# ---- in the store's folder


def _show(folder: Path, json_: bool) -> None:
    require("server")
    set_umask(store=folder)
    from datastem.instants import format_instant
    from psoup.store import Store, StoreError
    from psoup.store.erasure import erasure_status

    try:
        statuses = erasure_status(Store.open(folder))
    except (StoreError, OSError) as error:
        refuse(str(error))
    done = all(status.is_done for status in statuses)
    if json_:
        echo(as_json([_form(status) for status in statuses]))
    else:
        grid(
            ["stream", "rows", "erased", "on disk"],
            [
                [
                    status.stream,
                    f"{len(status.erasure.ids):,}",
                    format_instant(status.erasure.stamp),
                    status.remaining or "done",
                ]
                for status in statuses
            ],
            empty="nothing was erased",
        )
    if not done:
        sys.exit(1)


def _form(status: ErasureStatus) -> dict[str, Any]:
    from datastem.instants import format_instant

    return {
        "stream": status.stream,
        "rows": len(status.erasure.ids),
        "erased": format_instant(status.erasure.stamp),
        "done": status.is_done,
        "left": [status.remaining] if status.remaining else [],
    }


def _list(folder: Path, path: Path) -> None:
    require("server")
    set_umask(store=folder)
    from psoup.store import Store, StoreError
    from psoup.store.backup.erased import erasure_list

    try:
        erasures = erasure_list(Store.open(folder))
        erasures.write(path.absolute())
    except (StoreError, OSError) as error:
        refuse(str(error))
    note(f"{path}: {counted(len(erasures.events), 'erasure')}")
