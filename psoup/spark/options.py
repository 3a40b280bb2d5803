"""The options of `format("psoup")`, and the client that they describe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from client_sdk import DEFAULT_TARGET, Client, Credentials

_CREDENTIALS = {"token_file": "token_file", "tls_ca": "ca", "tls_cert": "cert", "tls_key": "key"}
_CONNECTION = ("target", "tenant", "owner", "tls", *_CREDENTIALS)
_READING = ("stream", "key", "sql", "window")
_STREAMING = ("from", "failondataloss", "maxrowspertrigger")
_WRITING = ("stream", "publisher", "staging")
# Options that Spark itself reads, and hands on.
_SPARK = frozenset({"path", "checkpointlocation", "querieddatasource"})
TIMEOUT_SECONDS = 300.0


@dataclass(frozen=True)
class SparkOptions:
    """Options by their names in small letters, as Spark hands them over; `-` is `_`."""

    values: Mapping[str, str]

    @classmethod
    def of(cls, options: Mapping[str, str]) -> SparkOptions:
        """Raises ValueError for an option that there is not."""
        values = {name.lower().replace("-", "_"): value for name, value in options.items()}
        names = {*_CONNECTION, *_READING, *_STREAMING, *_WRITING}
        unknown = values.keys() - names - _SPARK
        if unknown:
            raise ValueError(
                f'format("psoup") has no option {min(unknown)}; it has {", ".join(sorted(names))}'
            )
        return cls(values)

    def get(self, name: str) -> str:
        return self.values.get(name, "")

    @property
    def stream(self) -> str:
        """The stream to write to, or to follow. Raises ValueError if it is missing."""
        if not (name := self.get("stream")):
            raise ValueError(
                'give .option("stream", NAME); answers (key, sql) are read by spark.read, and '
                "their changes by psoup pull --changes-to"
            )
        return name

    def client(self) -> Client:
        """Return a client of the store."""
        parts: dict[str, Any] = {
            field: self.values[name] for name, field in _CREDENTIALS.items() if name in self.values
        }
        is_encrypted = self.get("tls").lower() == "true"
        credentials = Credentials(**parts, tls=is_encrypted) if parts or is_encrypted else None
        return Client(
            self.get("target") or DEFAULT_TARGET,
            tenant=self.get("tenant") or None,
            owner=self.get("owner") or None,
            timeout=TIMEOUT_SECONDS,
            credentials=credentials,
        )
