"""pulls.toml: several pulls in one file.

    [defaults]                  # what holds for all of them
    target = "localhost:7181"
    every = "15m"

    [pulls.dear]                # one table for each, named as the pull is
    sql = "SELECT symbol, price FROM trades WHERE price > :least RANGE 10 MINUTES"
    parameters = { least = 184.5 }
    to = "dear.parquet"

Paths are from the folder of the file. The state of all pulls of one store is one file, so that
they share a round trip: `pulls.toml.psoup` for the store of [defaults].
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, NoReturn

from client_sdk._credentials import Credentials
from client_sdk._exceptions import BadPull
from client_sdk._wire.values import Scalar
from client_sdk.pulls._http_changes import is_url
from client_sdk.pulls._pull import Hook, Pull, Store
from client_sdk.pulls._puller import check_together
from client_sdk.pulls._receivers import Receivers, is_operators
from client_sdk.pulls._schedule import Schedule, parse_duration
from client_sdk.pulls._sinks import FORMATS

Values = dict[str, Any]
_SCHEDULE_KEYS = ("every", "jitter", "aligned", "backoff", "backoff_cap")
_PULL_FIELDS = (
    *("sql", "key", "handle", "parameters", "lease", "window", "priority", "format", "always"),
    "csv_safe",
    "changes_to",
    "changes_secret_file",
    "every_point",
    "receivers",
    "key_file",
)


def load_pulls(path: Path | str, store: Store | None = None) -> tuple[Pull, ...]:
    """Return the pulls of a file. `store` is used if neither a pull nor [defaults] names one.

    Raises BadPull, whose message names the file, the table and the key.
    """
    return _File(Path(path), store or Store()).pulls()


@dataclass(frozen=True)
class _File:
    path: Path
    store: Store

    def pulls(self) -> tuple[Pull, ...]:
        content = self._content()
        self._check_names("", content, ("defaults", "pulls"))
        defaults = self._read("defaults", content.get("defaults", {}), SHARED_KEYS)
        tables = content.get("pulls")
        if not isinstance(tables, Mapping) or not tables:
            self._fail("", "there is no pull in it; add a table [pulls.NAME]")
        pulls = tuple(self._pull(name, table, defaults) for name, table in tables.items())
        try:
            check_together(pulls)
        except BadPull as error:
            self._fail("", error.message)
        return pulls

    def _content(self) -> Values:
        try:
            with self.path.open("rb") as file:
                return tomllib.load(file)
        except OSError as error:
            self._fail("", f"can't be read: {error.strerror}")
        except ValueError as error:
            self._fail("", str(error))

    def _pull(self, name: str, table: Any, defaults: Values) -> Pull:
        label = f"pulls.{name}"
        table_values = self._read(label, table, PULL_KEYS | SHARED_KEYS)
        if "to" not in table_values:
            self._fail(label, "to: missing; it says where the answer goes")
        values = {**_fitting(defaults, table_values), **table_values}
        try:
            state, store = self._state(values, defaults), _store(values, self.store)
            values["receivers"] = self._receivers(values.pop("allow", None))
            return _make_pull(name, values, state, store, self.path.parent)
        except ValueError as error:
            self._fail(label, str(error))

    def _receivers(self, allow: Sequence[str] | None) -> Receivers:
        """Return the addresses that changes may be posted to. Raises ValueError for `allow` in a
        file that others may write: they would allow themselves everything."""
        if not is_operators(self.path):
            if allow is not None:
                raise ValueError(
                    "allow: others own this file, or may write it; give --allow, or chmod go-w"
                )
            return Receivers.only(())
        return Receivers() if allow is None else Receivers.only(allow)

    def _read(self, label: str, table: Any, readers: Mapping[str, Reader]) -> Values:
        if not isinstance(table, Mapping):
            self._fail(label, "must be a table")
        self._check_names(label, table, readers)
        values = {}
        for key, value in table.items():
            try:
                values[key] = readers[key](value, self.path.parent)
            except ValueError as error:
                self._fail(label, f"{key}: {error}")
        return values

    def _check_names(self, label: str, table: Mapping[str, Any], names: Iterable[str]) -> None:
        known_names = list(names)
        for key in table:
            if key not in known_names:
                near = difflib.get_close_matches(key, known_names, 1)
                hint = f"did you mean {near[0]}?" if near else f"one of {', '.join(known_names)}"
                place = "" if label != "defaults" or key not in PULL_KEYS else " in [defaults]"
                self._fail(label, f"{key}: there is no such key{place}; {hint}")

    def _state(self, values: Values, defaults: Values) -> Path:
        """Return the state file of a pull: the one that is named, or one for each store."""
        if "state" in values:
            return Path(values["state"])
        store, usual = _store(values, self.store), _store(defaults, self.store)
        plain = self.path.with_name(f"{self.path.name}.psoup")
        if (store.target, store.names) == (usual.target, usual.names):
            return plain
        label = re.sub(r"[^A-Za-z0-9.]+", "-", " ".join([store.target, *store.names]))
        return plain.with_name(f"{self.path.name}.{label}.psoup")

    def _fail(self, label: str, message: str) -> NoReturn:
        table = f" [{label}]" if label else ""
        raise BadPull(f"{self.path}:{table} {message}") from None


def _fitting(defaults: Values, table_values: Values) -> Values:
    """Return the defaults that apply to this pull: for example no lease without a text."""
    named = defaults.keys() | table_values.keys()
    needs = {"lease": "sql", **dict.fromkeys(_SCHEDULE_KEYS, "every")}
    needs |= {key: "on_change" for key in defaults if key.startswith("on_change_")}
    return {key: value for key, value in defaults.items() if needs.get(key, key) in named}


def _store(values: Values, usual: Store) -> Store:
    return Store(
        values.get("target", usual.target),
        values.get("tenant", usual.tenant),
        values.get("owner", usual.owner),
        values["timeout"].total_seconds() if "timeout" in values else usual.timeout,
        _credentials(values, usual.credentials),
    )


def _credentials(values: Values, usual: Credentials | None) -> Credentials | None:
    """Return the credentials of a pull. What it does not set is as for the others. Raises
    ValueError.
    """
    settings = {_CREDENTIALS[key]: value for key, value in values.items() if key in _CREDENTIALS}
    if not settings:
        return usual
    # A token and a file of one exclude each other, and the file of this pull is the nearer one.
    if "token_file" in settings:
        settings["token"] = None
    try:
        return replace(usual or Credentials(), **settings)
    except ValueError as error:
        raise ValueError(f"tls_cert: {error}") from None


def _make_pull(name: str, values: Values, state: Path, store: Store, folder: Path) -> Pull:
    """Return a pull of its values. Raises ValueError, whose message begins with a key."""
    schedule = {key: values[key] for key in _SCHEDULE_KEYS if key in values}
    if schedule and "every" not in schedule:
        raise ValueError(f"{next(iter(schedule))}: needs every")
    return Pull(
        name,
        values["to"],
        state=state,
        store=store,
        schedule=Schedule(**schedule) if schedule else None,
        hook=_hook(values, folder),
        **{key: values[key] for key in _PULL_FIELDS if key in values},
    )


def _hook(values: Values, folder: Path) -> Hook | None:
    details = {key: values[key] for key in values if key.startswith("on_change_")}
    if "on_change" not in values:
        if details:
            raise ValueError(f"{next(iter(details))}: needs on_change")
        return None
    renamed = {key.removeprefix("on_change_"): value for key, value in details.items()}
    return Hook(values["on_change"], folder=folder, **renamed)


Reader = Callable[[Any, Path], Any]


def _text(value: Any, folder: Path) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("must be a text that is not empty")
    return value


def _texts(value: Any, folder: Path) -> list[str]:
    if not isinstance(value, list):
        raise ValueError('must be a list of texts, as ["10.0.0.0/8"]')
    return [_text(item, folder) for item in value]


def _flag(value: Any, folder: Path) -> bool:
    if not isinstance(value, bool):
        raise ValueError("must be true or false")
    return value


def _number(value: Any, folder: Path) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) >= 2**31:
        raise ValueError("must be a whole number")
    return value


def _duration(value: Any, folder: Path) -> timedelta:
    if not isinstance(value, str):
        raise ValueError("must be a duration in quotes, as '15m'")
    return parse_duration(value)


def _format(value: Any, folder: Path) -> str:
    if value not in FORMATS:
        raise ValueError(f"{value!r} is no format; one of {', '.join(FORMATS)}")
    return str(value)


def _path(value: Any, folder: Path) -> Path:
    """Return a path relative to the folder of the file, wherever the puller is started."""
    return folder / Path(_text(value, folder)).expanduser()


def _changes_target(value: Any, folder: Path) -> Path | str:
    """Return the URL of a receiver, or a path."""
    return _text(value, folder) if is_url(value) else _path(value, folder)


def _parameters(value: Any, folder: Path) -> dict[str, Scalar]:
    if not isinstance(value, Mapping):
        raise ValueError("must be a table, as { least = 184.5 }")
    return dict(_parameter(label, parameter) for label, parameter in value.items())


def _parameter(label: str, value: Any) -> tuple[str, Scalar]:
    """Return one parameter. TOML has all types but DECIMAL, which is `"name:decimal" = "12.50"`."""
    name, colon, kind = label.partition(":")
    if colon:
        if kind.lower() != "decimal" or not isinstance(value, str):
            raise ValueError(f'{label!r}: only "name:decimal" = "12.50" says its type')
        try:
            return name, Decimal(value)
        except InvalidOperation:
            raise ValueError(f"{label!r}: {value!r} is not a decimal") from None
    if isinstance(value, time) or not isinstance(value, bool | int | float | str | datetime | date):
        raise ValueError(f"{label!r}: {type(value).__name__} has no type in the language")
    return name, value


# The keys of the file that make the credentials, with the fields of Credentials.
_CREDENTIALS = {
    "tls": "tls",
    "tls_ca": "ca",
    "tls_cert": "cert",
    "tls_key": "key",
    "token_file": "token_file",
}

# The keys that only a pull may have, and those that [defaults] may have too.
PULL_KEYS: dict[str, Reader] = {
    "sql": _text,
    "key": _text,
    "handle": _text,
    "parameters": _parameters,
    "window": _text,
    "to": _path,
    "changes_to": _changes_target,
    "changes_secret_file": _path,
    "every_point": _flag,
    "key_file": _path,
}
SHARED_KEYS: dict[str, Reader] = {
    "format": _format,
    "state": _path,
    "lease": _duration,
    "priority": _number,
    "every": _duration,
    "jitter": _duration,
    "aligned": _flag,
    "backoff": _duration,
    "backoff_cap": _duration,
    "always": _flag,
    "csv_safe": _flag,
    "on_change": _text,
    "on_change_limit": _duration,
    "on_change_must_succeed": _flag,
    "allow": _texts,
    "target": _text,
    "tenant": _text,
    "owner": _text,
    "timeout": _duration,
    "tls": _flag,
    "tls_ca": _path,
    "tls_cert": _path,
    "tls_key": _path,
    "token_file": _path,
}
