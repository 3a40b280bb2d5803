"""pulls.toml: what it may say, and what is said about what it may not."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from client_sdk import BadPull, Credentials, Hook, Pull, Schedule, Store, load_pulls
from client_sdk.pulls import Receivers
from client_sdk.pulls._file import PULL_KEYS, SHARED_KEYS
from client_sdk.pulls._pull import name_from

FULL = """
[defaults]
target = "store:7181"
tenant = "desk"
every = "15m"
jitter = "1m"
backoff = "2s"
backoff_cap = "10m"
lease = "7d"
timeout = "5s"
on_change_limit = "1m"

[pulls.dear]
sql = "SELECT * FROM trades WHERE price > :least AND at > :since AND day = :day AND fee < :fee"
parameters.least = 184.5
parameters.since = 2026-11-16T09:00:00Z
parameters.day = 2026-11-16
parameters."fee:decimal" = "12.50"
window = "RANGE 1 HOUR"
to = "out/dear.parquet"
changes_to = "out/changes.jsonl"
every_point = true
priority = 3
on_change = "echo $PSOUP_ROWS"
on_change_must_succeed = true

[pulls.fleet]
handle = "2ad463586b0ac4173f5400cbf0f08366"
to = "fleet"
format = "delta"
state = "fleet.psoup"
always = true
csv_safe = true
allow = ["10.0.0.0/8"]
aligned = true
every = "1h"

[pulls.other]
key = "other"
to = "answers.sqlite"
target = "elsewhere:7181"
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "pulls.toml"
    path.write_text(text)
    return path


def test_everything_a_file_can_say(tmp_path: Path) -> None:
    path = written(tmp_path, FULL)
    store = Store("store:7181", "desk", "me", 5.0)
    spans = (timedelta(minutes=1), timedelta(seconds=2), timedelta(minutes=10))
    quarter = Schedule(timedelta(minutes=15), spans[0], False, spans[1], spans[2])
    dear, fleet, second = load_pulls(path, Store(owner="me"))
    assert dear == Pull(
        "dear",
        tmp_path / "out/dear.parquet",
        sql="SELECT * FROM trades WHERE price > :least AND at > :since AND day = :day "
        "AND fee < :fee",
        parameters={
            "least": 184.5,
            "since": datetime(2026, 11, 16, 9, tzinfo=UTC),
            "day": date(2026, 11, 16),
            "fee": Decimal("12.50"),
        },
        lease=timedelta(days=7),
        window="RANGE 1 HOUR",
        priority=3,
        state=tmp_path / "pulls.toml.psoup",
        schedule=quarter,
        changes_to=tmp_path / "out/changes.jsonl",
        every_point=True,
        hook=Hook("echo $PSOUP_ROWS", timedelta(minutes=1), True, tmp_path),
        store=store,
    )
    assert fleet == Pull(
        "fleet",
        tmp_path / "fleet",
        handle="2ad463586b0ac4173f5400cbf0f08366",
        format="delta",
        state=tmp_path / "fleet.psoup",
        always=True,
        csv_safe=True,
        receivers=Receivers.only(["10.0.0.0/8"]),
        schedule=Schedule(timedelta(hours=1), spans[0], True, spans[1], spans[2]),
        store=store,
    )
    assert second.store == Store("elsewhere:7181", "desk", "me", 5.0)
    assert second.state == tmp_path / "pulls.toml.elsewhere-7181-desk-me.psoup"
    assert (second.format, second.hook, second.lease) == ("sqlite", None, None)


def test_a_default_that_means_nothing_for_a_pull_is_left_out(tmp_path: Path) -> None:
    text = '[defaults]\njitter = "1m"\n[pulls.a]\nsql = "SELECT 1"\nto = "a.csv"\n'
    (pulls,) = load_pulls(written(tmp_path, text))
    assert pulls.schedule is None


ONE = '[pulls.dear]\nsql = "SELECT * FROM trades"\nto = "dear.csv"\n'

WRONG = [
    ("", "there is no pull in it; add a table [pulls.NAME]"),
    ("pulls = 3", "there is no pull in it"),
    ("[pulls.dear]]", "line 1, column"),
    ("[default]\n" + ONE, "default: there is no such key; did you mean defaults?"),
    (ONE + 'evry = "15m"', "[pulls.dear] evry: there is no such key; did you mean every?"),
    (ONE + "zzz = 1", "[pulls.dear] zzz: there is no such key; one of sql, key,"),
    ('[defaults]\nsql = "x"\n' + ONE, "[defaults] sql: there is no such key in [defaults]"),
    (ONE + "every = 15", "[pulls.dear] every: must be a duration in quotes"),
    (ONE + 'every = "15 parsecs"', "[pulls.dear] every: '15 parsecs' is not a duration"),
    (ONE + 'every = "1m"\njitter = "1m"', "[pulls.dear] jitter: must be shorter than every"),
    (ONE + 'jitter = "1m"', "[pulls.dear] jitter: needs every"),
    (ONE + 'on_change_limit = "1m"', "[pulls.dear] on_change_limit: needs on_change"),
    (ONE + 'format = "xml"', "[pulls.dear] format: 'xml' is no format; one of parquet,"),
    (ONE + 'priority = "high"', "[pulls.dear] priority: must be a whole number"),
    (ONE + "always = 1", "[pulls.dear] always: must be true or false"),
    (ONE + "key = 5", "[pulls.dear] key: must be a text that is not empty"),
    (ONE + "parameters = 5", "[pulls.dear] parameters: must be a table"),
    (ONE + "parameters = { a = [1] }", "[pulls.dear] parameters: 'a': list has no type"),
    (ONE + "parameters = { a = 09:00:00 }", "[pulls.dear] parameters: 'a': time has no type"),
    (ONE + 'parameters = { "a:decimal" = "x" }', "'a:decimal': 'x' is not a decimal"),
    (ONE + 'parameters = { "a:text" = "x" }', "'a:text': only"),
    (ONE + 'handle = "aa"', "[pulls.dear] handle: names a registration already"),
    ('[pulls.a]\nhandle = "aa"\nto = "a.csv"', "[pulls.a] handle: 'aa' is not a handle"),
    ('[pulls.a]\nkey = "k"\nlease = "1d"\nto = "a.csv"', "[pulls.a] sql: missing; parameters"),
    ('[pulls.a]\nto = "a.csv"', "[pulls.a] sql: missing; give sql, key or handle"),
    ('[pulls.a]\nsql = "x"', "[pulls.a] to: missing"),
    ('[pulls.a]\nsql = "x"\nto = "a"', "the name does not say the format"),
    ('[pulls.a]\nsql = "x"\nto = "a.db"\nstate = "a.db"', "[pulls.a] state: can't be the output"),
    ('[pulls."a b"]\nsql = "x"\nto = "a.csv"', "[pulls.a b] name: 'a b' is not allowed"),
    ('[pulls.sqlite_a]\nsql = "x"\nto = "a.csv"', "name: 'sqlite_a' is not allowed"),
    (ONE + '[pulls.b]\nsql = "x"\nto = "dear.csv"', "dear.csv is the output of dear too"),
    (ONE + '[pulls.Dear]\nsql = "x"\nto = "b.csv"', "two pulls are called Dear"),
]


@pytest.mark.parametrize(("text", "message"), WRONG)
def test_every_mistake_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(BadPull) as wrong:
        load_pulls(path)
    assert str(wrong.value).startswith(f"{path}:")
    assert message in str(wrong.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BadPull, match="can't be read: No such file"):
        load_pulls(tmp_path / "none.toml")
    with pytest.raises(BadPull, match="can't be read"):
        load_pulls(tmp_path)


def test_every_key_is_used_by_some_pull(tmp_path: Path) -> None:
    """The full examples have all of them but one, so none is read and then forgotten."""
    missing = [key for key in PULL_KEYS | SHARED_KEYS if f"\n{key}" not in FULL + SHOWN]
    assert missing == ["owner"]


SHOWN = """
[defaults]
target = "store.example:7181"
tls = true
token_file = "token"

[pulls.dear]
sql = "SELECT 1"
to = "dear.csv"

[pulls.other]
sql = "SELECT 1"
to = "other.csv"
tls_ca = "pki/ca.pem"
tls_cert = "pki/bob.pem"
tls_key = "pki/bob.key"
changes_to = "https://hooks.example/other"
changes_secret_file = "secret"
key_file = "state.key"
"""


def test_credentials_are_files_beside_the_file(tmp_path: Path) -> None:
    """What a pull does not say is as in [defaults], and what these don't as on the command line."""
    usual = Store(credentials=Credentials("psk_x", plaintext_token=True))
    dear, second = load_pulls(written(tmp_path, SHOWN), usual)
    token = tmp_path / "token"
    assert dear.store.credentials == Credentials(token_file=token, tls=True, plaintext_token=True)
    pki = tmp_path / "pki"
    assert second.store.credentials == Credentials(
        None, token, pki / "ca.pem", pki / "bob.pem", pki / "bob.key", True, True
    )
    assert dear.store.names == ("", "")


def test_credentials_that_do_not_fit_together(tmp_path: Path) -> None:
    with pytest.raises(BadPull, match="belong together"):
        load_pulls(written(tmp_path, ONE + 'tls_cert = "x"'))
    with pytest.raises(BadPull, match="token: there is no such key; did you mean token_file"):
        load_pulls(written(tmp_path, ONE + 'token = "psk_x"'))


def test_names_from_keys() -> None:
    assert name_from("big-blue") == "big-blue"
    assert name_from("2 Blue/é") == "p_2_Blue__"
    assert name_from("sqlite_x") == "p_sqlite_x"
    assert len(name_from("x" * 300)) == 63
