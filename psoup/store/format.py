"""The format of a store: who it is, which format it has, and how one of format 1 gets the present.

Both stand in the description of the log table. An upgrade is one commit of the log; nothing that is
there is written anew. The commit gives the log another description, which names for each table the
version from which on it has checksums, and holds an `upgrade` event, at which a server or engine of
the earlier version stops.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import sys
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from psoup.store.delta import DeltaFolder
from psoup.store.delta.checksums import checks_of
from psoup.store.delta.durable import remove
from psoup.store.delta.files import DataFile, write_data_file
from psoup.store.epochs import Epochs
from psoup.store.errors import Conflict, NotAStore, UnsupportedFormat
from psoup.store.layout import EPOCHS, FORMAT, LOG, TABLES
from psoup.store.log.events import Entry, Upgrade, to_table
from psoup.store.log.log import Log
from psoup.store.log.position import Position
from psoup.store.presence import ENGINE_LOCK

# No version: of a table of format 1 nothing need have a checksum.
NEVER = sys.maxsize


def new_identity() -> str:
    return json.dumps({"psoup": FORMAT, "store": uuid.uuid4().hex, "incarnation": uuid.uuid4().hex})


def read_identity(root: Path) -> dict[str, Any]:
    """Reads who a store is. `psoup` is its format. `checked` names for each table that format 1
    began the version from which on it has checksums; a table that is not named has them all.

    Raises NotAStore, UnsupportedFormat.
    """
    identity = _parse(root, DeltaFolder(root / "log", NEVER))
    if identity["psoup"] > FORMAT:
        raise UnsupportedFormat(
            f"the store has format {identity['psoup']}, this version reads up to {FORMAT}: "
            "upgrade psoup"
        )
    if identity["psoup"] < FORMAT:
        return identity
    # Now that it is known which commits bear a hash, none that lacks it is believed.
    return _parse(root, DeltaFolder(root / "log", identity.get("checked", {}).get("log", 0)))


def _parse(root: Path, log: DeltaFolder) -> dict[str, Any]:
    try:
        identity = json.loads(log.description)
        if identity["psoup"] < FORMAT and (later := log.redescribed()):
            identity = json.loads(later)
    except (ValueError, KeyError, TypeError):
        raise NotAStore(f"{root} holds a table named log that is not a store's") from None
    return dict(identity)


log = logging.getLogger("psoup.store")


def upgrade(root: Path, sync: bool) -> None:
    """Gives a store the present format; does nothing where it has that. Several processes may try
    at once, and one does it.

    Raises UnsupportedFormat where an engine of an earlier version runs on the store.
    """
    while (identity := read_identity(root))["psoup"] < FORMAT:
        if _engine_runs(root) and read_identity(root)["psoup"] < FORMAT:
            raise UnsupportedFormat(
                "the store has an earlier format, and its engine runs: stop all servers and the "
                "engine, then start the new ones"
            )
        _redefine_epochs(root, sync)
        folder = DeltaFolder(root / "log", NEVER)
        version = folder.latest_version() + 1
        checked = dict(_ends(root)) | {"log": version}
        event = Upgrade(FORMAT, checked)
        _, epoch = Epochs(DeltaFolder(root / "epochs", NEVER)).latest()
        stamp = Log(folder).last_stamp(epoch, version)
        entry = Entry(Position(version, 0), stamp, "", "", event)
        description = json.dumps(identity | {"psoup": FORMAT, "checked": checked})
        written = write_data_file(folder.root, to_table([entry]), sync=sync)
        try:
            folder.redefine(version, LOG, description, [written], sync=sync)
            log.info("the store has format %d now", FORMAT)
        except Conflict:
            remove([folder.path_of(written)])


def with_checks(root: Path, file: DataFile) -> DataFile:
    """Gives a file of format 1 checksums: its content is believed for the last time."""
    if file.checks is not None:
        return file
    return replace(file, checks=checks_of((root / file.path).read_bytes()))


def _engine_runs(root: Path) -> bool:
    try:
        descriptor = os.open(root / ENGINE_LOCK, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _ends(root: Path) -> Iterator[tuple[str, int]]:
    """Lists every table but the log, each with its next version."""
    stems = [f"stems/{found.parent.name}" for found in (root / "stems").glob("*/_delta_log")]
    for name in [*TABLES, *stems]:
        folder = DeltaFolder(root / name, NEVER)
        if name != "log" and folder.exists:
            yield name, folder.latest_version() + 1


def _redefine_epochs(root: Path, sync: bool) -> None:
    """Gives the epochs table its new columns, with the newest epoch once more."""
    folder = DeltaFolder(root / "epochs", NEVER)
    version = folder.latest_version()
    commit = folder.read_commit(version) if version else None
    if commit is not None and commit.added:
        again = with_checks(folder.root, commit.added[-1])
        folder.redefine(version + 1, EPOCHS, "", [again], sync=sync)
