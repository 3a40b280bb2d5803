"""A bucket of an S3-compatible service, behind the few calls that back-ups need.

No other module imports obstore. Only its synchronous calls are used: with the others processes were
seen to abort at exit. Errors say what to do, and repeat no credentials.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError
from obstore.store import S3Store

from psoup.store.backup.address import BucketAddress, read_credentials
from psoup.store.backup.copying import FileMark
from psoup.store.delta.durable import pieces_of, write_pieces
from psoup.store.errors import BackupFailed

# Files above this size are sent in parts.
PART_BYTES = 8 << 20
# Parts of one file that are sent at once.
_PARTS = 3
_REQUEST_SECONDS = 60
_RETRIES = 6
_RETRY_SECONDS = 120
_CODE = re.compile(r"<Code>(\w{1,64})</Code>")
_STATUS = re.compile(r"status code: (\d{3}[ \w]{0,40})")
_DENIED = ("403", "401", "InvalidAccessKeyId", "SignatureDoesNotMatch", "AccessDenied")


class ObjectTaken(BackupFailed):
    """An object exists already, or is not what it was."""


class ObjectMissing(BackupFailed):
    """There is no such object."""


class Bucket:
    """The objects below the prefix of an address, by name. All calls raise BackupFailed if the
    service can't be used."""

    def __init__(self, address: BucketAddress) -> None:
        self.address = address
        options: dict[str, Any] = dict(read_credentials())
        if address.endpoint is not None:
            options["endpoint"] = address.endpoint
        if address.region is not None:
            options["region"] = address.region
        plain = address.endpoint is not None and address.endpoint.startswith("http://")
        with self._errors():
            self._store: Any = S3Store(
                address.bucket,
                prefix=address.prefix,
                client_options={"timeout": f"{_REQUEST_SECONDS}s", "allow_http": plain},
                retry_config={
                    "max_retries": _RETRIES,
                    "retry_timeout": timedelta(seconds=_RETRY_SECONDS),
                },
                **options,
            )

    def create(self, name: str, content: bytes) -> str:
        """Create an object; return its version. Raise ObjectTaken if one has other bytes."""
        for _ in range(_RETRIES):
            with self._errors():
                try:
                    return _version(obstore.put(self._store, name, content, mode="create"))
                except (AlreadyExistsError, PreconditionError):
                    pass
            # A request whose answer was lost is repeated, and meets its own object. If there is
            # none, another request for this name was under way, or it was removed since.
            with suppress(ObjectMissing):
                existing, version = self.get(name)
                if existing == content:
                    return version
                break
        raise ObjectTaken(f"{self.address}/{name} exists already")

    def replace(self, name: str, content: bytes, version: str) -> str:
        """Replace a version of an object; return the new one. Raise ObjectTaken for another."""
        with self._errors():
            try:
                return _version(obstore.put(self._store, name, content, mode={"e_tag": version}))
            except (AlreadyExistsError, PreconditionError):
                pass
        existing: bytes | None
        try:
            existing, newer = self.get(name)
        except ObjectMissing:
            existing, newer = None, ""
        if existing != content:
            raise ObjectTaken(f"{self.address}/{name} was changed by another process")
        return newer

    def put(self, name: str, content: bytes) -> None:
        """Write an object."""
        with self._errors():
            obstore.put(self._store, name, content)

    def upload(self, name: str, source: Path, mark: FileMark) -> None:
        """Write an object with the bytes of a file. Raise BackupFailed if they lack their mark;
        there is no object then."""
        pieces = _checked(source, mark)
        content = b"".join(pieces) if mark.size <= PART_BYTES else pieces
        with self._errors():
            obstore.put(
                self._store, name, content, chunk_size=PART_BYTES, max_concurrency=_PARTS,
            )  # fmt: skip

    def get(self, name: str, size: int | None = None) -> tuple[bytes, str]:
        """Return the (first) bytes of an object, and its version. Raise ObjectMissing."""
        options = {} if size is None else {"range": (0, size)}
        with self._errors():
            answer = obstore.get(self._store, name, options=options)
            return bytes(answer.bytes()), _version(answer.meta)

    def download(self, name: str, target: Path, rights: int = 0o666) -> FileMark:
        """Copy an object to a file with these rights, durably; return its mark. Raise
        ObjectMissing."""
        return FileMark(*write_pieces(target, self._pieces(name), rights))

    def mark_of(self, name: str) -> FileMark:
        """Return the mark of an object, whose bytes are read. Raise ObjectMissing."""
        size = crc = 0
        for piece in self._pieces(name):
            size, crc = size + len(piece), zlib.crc32(piece, crc)
        return FileMark(size, crc)

    def names(self, prefix: str) -> Iterator[str]:
        """Yield the names of all objects of a folder."""
        with self._errors():
            for page in obstore.list(self._store, prefix):
                yield from (str(item["path"]) for item in page)

    def folders(self) -> list[str]:
        """Return the names of all folders."""
        with self._errors():
            folders = obstore.list_with_delimiter(self._store)["common_prefixes"]
            return [str(name).rstrip("/").rpartition("/")[2] for name in folders]

    def remove(self, names: list[str]) -> None:
        """Remove objects; those that are gone are no error."""
        with self._errors():
            if names:
                obstore.delete(self._store, names)

    def _pieces(self, name: str) -> Iterator[memoryview]:
        with self._errors():
            for piece in obstore.get(self._store, name).stream(min_chunk_size=PART_BYTES):
                yield memoryview(piece)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except BackupFailed:
            raise
        except (BaseError, FileNotFoundError, PermissionError, NotImplementedError) as error:
            text = str(error)
            code = _first(_CODE, text)
            if isinstance(error, FileNotFoundError) and code != "NoSuchBucket":
                raise ObjectMissing(text.partition(":")[0]) from None
            raise BackupFailed(self._message(text, code)) from None

    def _message(self, text: str, code: str) -> str:
        reason = code or _first(_STATUS, text)
        bucket, service = self.address.bucket, self.address.endpoint or "the service"
        if code == "NoSuchBucket":
            return f"there is no bucket {bucket}; create it first"
        if any(word in f"{reason} {_first(_STATUS, text)}" for word in _DENIED):
            return (
                f"{service} refused the credentials for the bucket {bucket} ({reason}); see "
                "AWS_ACCESS_KEY_ID, or ~/.aws/credentials and AWS_PROFILE"
            )
        if reason:
            return f"{service} failed with {reason}; run the command again, it goes on"
        if "credential" in text.lower() or "169.254" in text:
            return (
                "there are no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or "
                "write ~/.aws/credentials"
            )
        return f"{service} can't be reached, or cut the connection; run the command again"


def _checked(source: Path, mark: FileMark) -> Iterator[bytes]:
    """Yield the bytes of a file. Raise BackupFailed at the end if they lack their mark: then the
    upload is given up."""
    size = crc = 0
    try:
        for piece in pieces_of(source):
            size, crc = size + len(piece), zlib.crc32(piece, crc)
            if size >= mark.size and FileMark(size, crc) != mark:
                break
            yield piece
    except FileNotFoundError as error:
        raise BackupFailed(f"{source} is gone") from error
    except OSError as error:
        raise BackupFailed(f"{source} can't be read: {error.strerror}") from error
    if FileMark(size, crc) != mark:
        raise BackupFailed(f"{source} is damaged: its checksum is wrong")


def _version(meta: Any) -> str:
    return str(meta["e_tag"])


def _first(pattern: re.Pattern[str], text: str) -> str:
    match = pattern.search(text)
    return match[1].strip() if match else ""
