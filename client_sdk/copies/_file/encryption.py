"""Encryption of a file: its key, the sidecar that recognises the key, another key for a file.

The sidecar `<file>-psoup` distinguishes a wrong key from a damaged file. It has a check value of
the key, from which the key can't be computed. While a key is being replaced it has those of both
keys: one of them opens the file, whenever the process is killed.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from client_sdk._exceptions import CopyError, WrongFile, WrongKey
from client_sdk.copies._file import sqlite

# The bytes of a key, or a function that returns them, for the keychain of the platform.
Key = bytes | Callable[[], bytes]

_MAGIC = "psoup copies"
_CHECK_BYTES = 16
_SALT_BYTES = 8


def key_bytes(key: Key | None) -> bytes | None:
    """Return the bytes of a key. Raises ValueError if they are not 32."""
    content = key() if callable(key) else key
    if content is None:
        return None
    if not isinstance(content, bytes) or len(content) != sqlite.KEY_BYTES:
        raise ValueError(
            f"a key has {sqlite.KEY_BYTES} random bytes: secrets.token_bytes({sqlite.KEY_BYTES})"
        )
    return content


def sidecar_of(path: Path) -> Path:
    return Path(f"{path}-psoup")


def _is_new(path: Path) -> bool:
    """Return whether there is nothing in the file yet."""
    return not path.exists() or not path.stat().st_size


@dataclass(frozen=True, slots=True)
class _Keys:
    """The content of a sidecar: check values of one key, or of two while one replaces the other.

    While it is `encrypting`, the file may be plain.
    """

    checks: tuple[str, ...] = ()
    encrypting: bool = False


class Sidecar:
    """The sidecar of a file.

    It is read instead of the file's head: closing a file that SQLite has open too, in the same
    process, would release SQLite's locks.
    """

    def __init__(self, path: Path) -> None:
        self.path = sidecar_of(path)

    def read(self) -> _Keys:
        """Return its content; no keys without a sidecar, or if it can't be read."""
        try:
            content = json.loads(self.path.read_text())
            if content["magic"] != _MAGIC or content["kdf"] != "none":
                return _Keys()
            return _Keys(tuple(map(str, content["checks"])), bool(content["encrypting"]))
        except (OSError, ValueError, KeyError, TypeError):
            return _Keys()

    def write(self, *keys: bytes, encrypting: bool = False) -> None:
        """Write the check values of keys, durably, all or nothing."""
        checks = [_check(key, secrets.token_bytes(_SALT_BYTES)) for key in keys]
        content = {"magic": _MAGIC, "kdf": "none", "checks": checks, "encrypting": encrypting}
        fresh = self.path.with_name(f"{self.path.name}.new")
        with fresh.open("w") as file:
            json.dump(content, file)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self.path)
        _sync_folder(self.path.parent)


def _is_of(check: str, key: bytes) -> bool:
    """Return whether a check value is that of a key; False if it is damaged."""
    try:
        return check == _check(key, bytes.fromhex(check)[:_SALT_BYTES])
    except ValueError:
        return False


def _check(key: bytes, salt: bytes) -> str:
    digest = hashlib.blake2b(_MAGIC.encode(), key=key, salt=salt, digest_size=_CHECK_BYTES)
    return (salt + digest.digest()).hex()


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def check_key(path: Path, key: bytes | None) -> None:
    """Raise WrongKey if a file can't be opened with a key, or without one, as far as its sidecar
    says. A new file gets its sidecar.
    """
    sidecar = Sidecar(path)
    keys = sidecar.read()
    if _is_new(path):
        sidecar.path.unlink(missing_ok=True)
        if key is not None:
            sidecar.write(key)
    elif key is None and keys.checks and not keys.encrypting:
        raise WrongKey(f"{path} is encrypted: open it with its key")
    elif key is not None and keys.checks and not any(_is_of(check, key) for check in keys.checks):
        raise WrongKey(f"{path} was encrypted with another key")


def unreadable(path: Path, key: bytes | None) -> WrongKey | None:
    """Return why a file is no database, if it may be for the key; None if the key is right, or
    there is none, so that the file is damaged.
    """
    keys = Sidecar(path).read()
    if key is None:
        return WrongKey(f"{path} is encrypted: open it with its key") if keys.checks else None
    if keys.encrypting:
        return WrongKey(f"{path} is not encrypted: Copies.encrypt was interrupted; run it again")
    if len(keys.checks) > 1:
        return WrongKey(f"{path}: replacing its key was interrupted; open it with the other key")
    if keys.checks:
        return None
    return WrongKey(
        f"{path} is not encrypted (Copies.encrypt(path, key) does that), has another key, or is "
        "damaged; its file -psoup, which would say so, is missing"
    )


def settle_key(path: Path, key: bytes) -> None:
    """Note that a key has opened a file, unless the sidecar says just that."""
    keys = Sidecar(path).read()
    if len(keys.checks) != 1 or keys.encrypting:
        Sidecar(path).write(key)


def encrypt(path: str | os.PathLike[str], key: Key) -> None:
    """Encrypt a plain file, which no process may have open. If this is interrupted, the file is as
    it was, or encrypted.

    The rows are written to a new file, which takes the place of the old one. Raises CopyError.
    """
    plain, secret = Path(path), key_bytes(key)
    if secret is None:
        raise ValueError("encrypt() takes a key")
    sqlite.require_cipher()
    if not plain.is_file():
        raise CopyError(f"there is no file {plain}")
    keys = Sidecar(plain).read()
    if keys.checks and not keys.encrypting:
        raise WrongFile(f"{plain} is encrypted already")
    fresh = Path(f"{plain}.encrypting")
    # An earlier attempt may have been killed.
    for leftover in (fresh, Path(f"{fresh}-journal"), Path(f"{fresh}-wal")):
        leftover.unlink(missing_ok=True)
    try:
        _close_log(plain)
        _export(plain, fresh, secret)
    except sqlite.Error as error:
        fresh.unlink(missing_ok=True)
        raise CopyError(f"{plain} can't be encrypted: {error}") from error
    with fresh.open("rb") as file:
        os.fsync(file.fileno())
    Sidecar(plain).write(secret, encrypting=True)
    fresh.replace(plain)
    _sync_folder(plain.parent)
    Sidecar(plain).write(secret)


def _close_log(plain: Path) -> None:
    """Empty the log of a plain file. Raises an error of SQLite if another connection has it open.

    With SQLite and not SQLCipher: two libraries in one process don't see each other's locks.
    """
    with closing(sqlite.connect(plain, timeout=0)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")


def _export(plain: Path, fresh: Path, key: bytes) -> None:
    with closing(sqlite.connect(plain, cipher=True, timeout=0)) as connection:
        connection.execute(f"ATTACH ? AS fresh KEY {sqlite.key_literal(key)}", (str(fresh),))
        connection.execute("BEGIN EXCLUSIVE")
        connection.execute("SELECT sqlcipher_export('fresh')")
        for name in ("application_id", "user_version"):
            (number,) = connection.execute(f"PRAGMA main.{name}").fetchone()
            connection.execute(f"PRAGMA fresh.{name} = {number}")
        connection.execute("COMMIT")
