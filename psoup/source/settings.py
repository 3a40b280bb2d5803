"""sources.toml: several sources in one file.

    [defaults]                              # what holds for all of them
    target = "store.example"
    token_file = "/run/secrets/psoup.key"

    [sources.trades]                        # one table for each
    kafka = { servers = "broker:9092", topic = "trades", settings_file = "kafka.properties" }
    format = "json"
    stream = "trades"
    columns = { symbol = "sym", at = "$timestamp" }

Paths are from the folder of the file. Secrets are never in it: it names files that hold them.
`${ENV:NAME}` in a text is the variable NAME of the environment.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from client_sdk import DEFAULT_TARGET, AsyncClient, Credentials
from client_sdk.pulls import parse_duration
from psoup.source.errors import BadSettings
from psoup.source.feeding.bad_rows import MOST_BAD_ROWS, BadRows

TIMEOUT_SECONDS = 30.0
# The tables of a source that say where its rows are, with their keys.
PLACES: dict[str, frozenset[str]] = {
    "files": frozenset({"pattern", "after"}),
    "delta": frozenset({"table", "changes", "settings_file"}),
    "postgres": frozenset({"dsn_file", "slot", "publication", "table", "on_truncate", "slot_most"}),
    "kafka": frozenset({"servers", "topic", "settings_file", "on_truncate"}),
}
_STORE_KEYS = frozenset(
    {"target", "tenant", "owner", "token_file", "tls", "tls_ca", "tls_cert", "tls_key"}
)
_SOURCE_KEYS = frozenset(
    {
        "stream",
        "create",
        "format",
        "columns",
        "parse",
        "null",
        "delimiter",
        "encoding",
        "bad_rows",
        "bad_rows_most",
        "aside",
        "idle_heartbeat",
    }
)
_SECRET = re.compile(r"pass(word|wd|phrase)?$|secret|token|api_?key|credential|^dsn$", re.I)
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_VARIABLE = re.compile(r"\$\{ENV:([A-Za-z_][A-Za-z0-9_]*)\}")


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """Where the store is, and as which owner the source publishes."""

    target: str = DEFAULT_TARGET
    tenant: str | None = None
    owner: str | None = None
    credentials: Credentials | None = None

    def client(self) -> AsyncClient:
        return AsyncClient(
            self.target,
            tenant=self.tenant,
            owner=self.owner,
            timeout=TIMEOUT_SECONDS,
            credentials=self.credentials,
        )


@dataclass(frozen=True, slots=True)
class SourceSettings:
    """One source: the kind and the place of its rows, and the stream they go into.

    `columns` maps columns of the stream to paths; `parse` are columns whose numbers may be texts.
    A source that is idle for `heartbeat_seconds`, if they are not 0, moves NOW of its stream.
    `folder` is that of the file, from which paths are.
    """

    name: str
    kind: str
    place: Mapping[str, Any]
    stream: str
    folder: Path
    store: StoreSettings = StoreSettings()
    create: str = ""
    format: str = ""
    columns: Mapping[str, str] = field(default_factory=dict)
    parse: frozenset[str] = frozenset()
    null: str = ""
    delimiter: str = ""
    encoding: str = "utf-8"
    bad_rows: str = "stop"
    bad_rows_most: int | str = MOST_BAD_ROWS
    aside: str = ""
    heartbeat_seconds: float = 0.0

    def policy(self) -> BadRows:
        """Return what becomes of bad rows. Raises BadSettings."""
        most = self.bad_rows_most
        if isinstance(most, int):
            return BadRows(self.bad_rows, self.aside, most)
        if not re.fullmatch(r"\d+(\.\d+)?\s*%", most):
            raise BadSettings('bad_rows_most: write a number, or "1%"')
        return BadRows(self.bad_rows, self.aside, 0, float(most.rstrip("% ")) / 100)

    def path(self, key: str) -> Path:
        """Return a path of the place. Raises BadSettings if it is missing."""
        return self.folder / Path(self.text(key)).expanduser()

    def text(self, key: str, default: str | None = None) -> str:
        """Return a text of the place. Raises BadSettings if it is missing and has no default."""
        value = self.place.get(key, default)
        if not isinstance(value, str) or not value:
            raise BadSettings(f"[sources.{self.name}] {self.kind}: {key} must be a text")
        return value


def load_settings(path: Path) -> dict[str, SourceSettings]:
    """Return the sources of a file by name. Raises BadSettings."""
    try:
        document = tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BadSettings(f"{path}: {error}") from None
    try:
        return _sources(document, path.absolute().parent)
    except BadSettings as error:
        raise BadSettings(f"{path}: {error}") from None


def _sources(document: Mapping[str, Any], folder: Path) -> dict[str, SourceSettings]:
    _refuse_secrets(document, "")
    _check_keys(document, frozenset({"defaults", "sources"}), "the file")
    defaults = _table(document.get("defaults", {}), "[defaults]")
    _check_keys(defaults, _STORE_KEYS | _SOURCE_KEYS - {"stream", "create"}, "[defaults]")
    tables = _table(document.get("sources", {}), "[sources]")
    if not tables:
        raise BadSettings("there is no [sources.NAME]")
    sources = {}
    for name, table in tables.items():
        if not _NAME.fullmatch(name):
            raise BadSettings(f"[sources.{name}]: a name has letters, digits, _, . and -")
        try:
            sources[name] = _source(name, defaults, _table(table, "it"), folder)
        except BadSettings as error:
            raise BadSettings(f"[sources.{name}]: {error}") from None
    return sources


def _source(
    name: str, defaults: Mapping[str, Any], table: Mapping[str, Any], folder: Path
) -> SourceSettings:
    _check_keys(table, _STORE_KEYS | _SOURCE_KEYS | PLACES.keys(), "it")
    kinds = sorted(PLACES.keys() & table.keys())
    if len(kinds) != 1:
        raise BadSettings(f"give one of {', '.join(PLACES)}")
    place = _expanded(table[kinds[0]])
    if kinds[0] == "files" and isinstance(place, str):
        place = {"pattern": place}
    place = _table(place, kinds[0])
    _check_keys(place, PLACES[kinds[0]], kinds[0])
    values = {**defaults, **table}
    fields = {key: _expanded(values[key]) for key in _SOURCE_KEYS & values.keys()}
    for key, value in fields.items():
        expected = {"columns": Mapping, "parse": list, "bad_rows_most": int | str}.get(key, str)
        if not isinstance(value, expected) or isinstance(value, bool):
            raise BadSettings(f"{key}: {value!r} is not what it should be")
    if not fields.get("stream"):
        raise BadSettings('stream = "NAME" is missing')
    fields["parse"] = frozenset(fields.get("parse", ()))
    columns = fields.get("columns", {})
    if not all(isinstance(path, str) for path in columns.values()):
        raise BadSettings("columns: write column = 'path'")
    store = _store({key: _expanded(values[key]) for key in _STORE_KEYS & values.keys()}, folder)
    fields["heartbeat_seconds"] = _heartbeat_seconds(fields.pop("idle_heartbeat", ""), kinds[0])
    settings = SourceSettings(name, kinds[0], place, folder=folder, store=store, **fields)
    settings.policy()
    return settings


def _heartbeat_seconds(text: str, kind: str) -> float:
    if not text:
        return 0.0
    if kind == "files":
        raise BadSettings("idle_heartbeat is for kafka, delta and postgres")
    try:
        seconds = parse_duration(text).total_seconds()
    except ValueError as error:
        raise BadSettings(f"idle_heartbeat: {error}") from None
    if seconds < 1:
        raise BadSettings("idle_heartbeat: write a second or more, as 10s")
    return seconds


def _store(values: Mapping[str, Any], folder: Path) -> StoreSettings:
    files = {"token_file": "token_file", "tls_ca": "ca", "tls_cert": "cert", "tls_key": "key"}
    parts: dict[str, Any] = {
        field_name: folder / Path(str(values[key])).expanduser()
        for key, field_name in files.items()
        if key in values
    }
    if values.get("tls"):
        parts["tls"] = True
    try:
        credentials = Credentials(**parts) if parts else None
    except ValueError as error:
        raise BadSettings(str(error)) from None
    return StoreSettings(
        values.get("target", DEFAULT_TARGET), values.get("tenant"), values.get("owner"), credentials
    )


def _table(value: Any, label: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise BadSettings(f"{label} must be a table")
    return value


def _check_keys(table: Mapping[str, Any], keys: frozenset[str] | set[str], label: str) -> None:
    for key in table:
        if key not in keys:
            close = difflib.get_close_matches(key, keys, 1)
            hint = (
                f"; did you mean {close[0]}?"
                if close
                else f"; it may have {', '.join(sorted(keys))}"
            )
            raise BadSettings(f"{label} has an unknown key {key}{hint}")


def _refuse_secrets(value: Any, label: str) -> None:
    """Raise BadSettings for a key that is named like a secret and is not the name of a file."""
    if not isinstance(value, Mapping):
        return
    for key, inner in value.items():
        if _SECRET.search(key) and not key.endswith("_file") and not isinstance(inner, Mapping):
            form = {"dsn": "dsn_file"}.get(key, "token_file, dsn_file or settings_file")
            raise BadSettings(
                f"{label}{key}: no secrets in this file. Put it into a file of its own, and name "
                f"that with {form}"
            )
        _refuse_secrets(inner, f"{label}{key}.")


def _expanded(value: Any) -> Any:
    """Return the value with variables of the environment put in. Raises BadSettings."""
    if isinstance(value, Mapping):
        return {key: _expanded(inner) for key, inner in value.items()}
    if not isinstance(value, str):
        return value

    def variable(match: re.Match[str]) -> str:
        if match[1] not in os.environ:
            raise BadSettings(f"the environment has no variable {match[1]}")
        return os.environ[match[1]]

    return _VARIABLE.sub(variable, value)
