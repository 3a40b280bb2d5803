"""The format of a store: who it is, which format it has, and how an earlier one gets the present.

Both stand in the description of the log table. An upgrade is one commit of the log, once the tables
that have gained columns say so; nothing that is there is written anew. The commit gives the log
another description, which names for each table that format 1 began the version from which on it has
checksums, and holds an event at which a server or engine of the earlier version stops. Before the
engine consumes that event it makes a checkpoint with the description, which stops them later.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import sys
import uuid
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
from psoup.store.log.event_table import to_table
from psoup.store.log.events import Entry, Upgrade
from psoup.store.log.log import Log
from psoup.store.log.position import Position
from psoup.store.presence import ENGINE_LOCK

log = logging.getLogger("psoup.store")

# The first format whose files and commits have checksums.
_CHECKED = 2
# The tables that gained columns after an earlier format, besides the epochs.
_GREW = ("catalog", "registrations", "leases")
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
    if identity["psoup"] < _CHECKED:
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


def upgrade(root: Path, sync: bool) -> None:
    """Gives a store the present format; does nothing where it has that. Several processes may try
    at once, and one does it.

    Raises UnsupportedFormat where an engine of an earlier version runs on the store.
    """
    while read_identity(root)["psoup"] < FORMAT:
        if _engine_runs(root) and read_identity(root)["psoup"] < FORMAT:
            raise UnsupportedFormat(
                "the store has an earlier format, and its engine runs: stop all servers and the "
                "engine, then start the new ones"
            )
        with contextlib.suppress(Conflict):
            _upgrade(root, sync)


def _upgrade(root: Path, sync: bool) -> None:
    """Upgrades a store unless somebody just has. Raises Conflict where somebody writes to it."""
    # The commit is made at the version after all that was looked at, or not at all.
    version = DeltaFolder(root / "log", NEVER).latest_version() + 1
    identity = read_identity(root)
    if identity["psoup"] == FORMAT:
        return
    unchecked = identity["psoup"] < _CHECKED
    _redefine_epochs(root, identity, sync)
    for name in _GREW:
        _redefine(root, identity, name, sync)
    checked = _ends(root) | {"log": version} if unchecked else identity.get("checked", {})
    folder = _folder(root, identity, "log")
    _, epoch = Epochs(_folder(root, identity, "epochs")).latest()
    stamp = Log(folder).last_stamp(epoch, version)
    entry = Entry(Position(version, 0), stamp, "", "", Upgrade(FORMAT, checked))
    description = json.dumps(identity | {"psoup": FORMAT, "checked": checked})
    written = write_data_file(folder.root, to_table([entry]), sync=sync)
    try:
        folder.redefine(version, LOG, description, [written], sync=sync)
        log.info("the store has format %d now", FORMAT)
    except Conflict:
        remove([folder.path_of(written)])
        raise


def make_known(log_folder: DeltaFolder) -> None:
    """Makes a checkpoint of the log where the last one, or else the first commit, tells of an
    earlier format. Only the engine may call it, and does so before it consumes the upgrade.

    A program of format 2 looks no further than there, and at the log after the newest epoch.
    """
    if json.loads(log_folder.description)["psoup"] < FORMAT:
        log_folder.checkpoint()


def _folder(root: Path, identity: dict[str, Any], name: str) -> DeltaFolder:
    """A table of a store that is not upgraded yet."""
    checked = identity.get("checked", {}).get(name, 0)
    return DeltaFolder(root / name, NEVER if identity["psoup"] < _CHECKED else checked)


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


def _ends(root: Path) -> dict[str, int]:
    """The next version of every table but the log."""
    stems = [f"stems/{found.parent.name}" for found in (root / "stems").glob("*/_delta_log")]
    names = [name for name in (*TABLES, *stems) if name != "log"]
    folders = {name: DeltaFolder(root / name, NEVER) for name in names}
    return {name: one.latest_version() + 1 for name, one in folders.items() if one.exists}


def _redefine_epochs(root: Path, identity: dict[str, Any], sync: bool) -> None:
    """Gives the epochs table its new columns, with the newest epoch once more."""
    folder = _folder(root, identity, "epochs")
    version = folder.latest_version()
    commit = folder.read_commit(version) if version else None
    if commit is not None and commit.added:
        again = with_checks(folder.root, commit.added[-1])
        folder.redefine(version + 1, EPOCHS, "", [again], sync=sync)


def _redefine(root: Path, identity: dict[str, Any], name: str, sync: bool) -> None:
    """Gives a table its new columns. The commit holds no files, so it stands above what the newest
    epoch names without saying anything else."""
    folder = _folder(root, identity, name)
    folder.redefine(folder.latest_version() + 1, TABLES[name], "", (), sync=sync)
