"""The address of a prefix in a bucket, and the credentials for it.

Credentials come from the environment or a file, never from the address: addresses are printed.
"""

from __future__ import annotations

import configparser
import os
import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from psoup.store.errors import BackupFailed

SCHEME = "s3://"
_OPTIONS = ("endpoint", "region")
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,62}")
_PREFIX = re.compile(r"[A-Za-z0-9._=-]+(/[A-Za-z0-9._=-]+)*")
_FORM = "s3://BUCKET/PREFIX[?endpoint=URL&region=NAME]"


@dataclass(frozen=True, slots=True)
class BucketAddress:
    """A prefix of a bucket, without secrets. `endpoint` is the URL of a service that is not
    Amazon's."""

    bucket: str
    prefix: str
    endpoint: str | None = None
    region: str | None = None

    @classmethod
    def parse(cls, text: str) -> BucketAddress:
        """Return the address in a text that begins with `s3://`. Raise ValueError, which does not
        repeat the text: it may have credentials in it."""
        parts = urlsplit(text)
        if "@" in parts.netloc:
            raise ValueError("credentials do not belong into an address; put them into a file")
        prefix = parts.path.strip("/")
        names = set(prefix.split("/"))
        if not _BUCKET.fullmatch(parts.netloc) or not _PREFIX.fullmatch(prefix) or parts.fragment:
            raise ValueError(f"write {_FORM}, with letters, digits and . _ = - in the names")
        if names & {".", ".."}:
            raise ValueError("the prefix must not have . or .. as a part")
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        if unknown := sorted(options.keys() - _OPTIONS):
            raise ValueError(f"unknown option {unknown[0]!r}; write {_FORM}")
        endpoint = options.get("endpoint")
        if endpoint is not None and not _is_plain_url(endpoint):
            raise ValueError("endpoint is not a URL such as https://s3.example:9000")
        return cls(parts.netloc, prefix, endpoint, options.get("region"))

    def __str__(self) -> str:
        return f"{SCHEME}{self.bucket}/{self.prefix}"


def _is_plain_url(text: str) -> bool:
    try:
        url = urlsplit(text)
        return url.scheme in ("http", "https") and bool(url.hostname) and "@" not in url.netloc
    except ValueError:
        return False


def read_credentials() -> dict[str, str]:
    """Return the credentials of `~/.aws/credentials`, or of the file and the profile that
    AWS_SHARED_CREDENTIALS_FILE and AWS_PROFILE name. Empty if the environment has others, or the
    file is missing: then the library asks the machine for them.

    Raise BackupFailed for a file that others may read, or without the profile.
    """
    named = os.environ.get("AWS_SHARED_CREDENTIALS_FILE")
    path = Path(named) if named else Path.home() / ".aws" / "credentials"
    if "AWS_ACCESS_KEY_ID" in os.environ or not (named or path.exists()):
        return {}
    parser, profile = configparser.RawConfigParser(), os.environ.get("AWS_PROFILE", "default")
    try:
        with path.open() as file:
            if os.fstat(file.fileno()).st_mode & 0o077:
                raise BackupFailed(f"others may read {path}; run `chmod 600 {path}`")
            parser.read_file(file)
        section = parser[profile]
        credentials = {
            name: section[name] for name in ("aws_access_key_id", "aws_secret_access_key")
        }
    except KeyError as error:
        raise BackupFailed(f"{path} lacks the profile {profile!r}, or {error} in it") from None
    except (configparser.Error, UnicodeDecodeError):
        # The error would show the lines.
        raise BackupFailed(f"{path} is not a file of credentials") from None
    if token := section.get("aws_session_token"):
        credentials["aws_session_token"] = token
    return credentials
