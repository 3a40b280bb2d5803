"""sources.toml: what it may say, and that it holds no secrets."""

from __future__ import annotations

from pathlib import Path

import pytest

from psoup.source.connectors.kafka.broker import read_properties
from psoup.source.errors import BadSettings
from psoup.source.settings import load_settings


def load(tmp_path: Path, text: str) -> object:
    path = tmp_path / "sources.toml"
    path.write_text(text)
    return load_settings(path)


GOOD = """
[defaults]
target = "${ENV:STORE}"
token_file = "key"
[sources.doors]
files = "drop/*.csv"
stream = "doors"
columns = { door = "d" }
bad_rows = "aside"
aside = "rejected"
bad_rows_most = "1%"
"""


def test_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STORE", "store.example")
    (tmp_path / "sources.toml").write_text(GOOD)
    (settings,) = load_settings(tmp_path / "sources.toml").values()
    assert settings.kind == "files" and settings.store.target == "store.example"
    assert settings.path("pattern") == tmp_path / "drop/*.csv"
    assert settings.store.credentials is not None
    assert settings.store.credentials.token_file == tmp_path / "key"
    assert settings.policy().most_share == 0.01


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no \\[sources.NAME\\]"),
        ("[sources.x]\nstream = 's'", "give one of files"),
        ("[sources.x]\nfiles = 'a'\nkafka = {}\nstream = 's'", "give one of"),
        ("[sources.x]\nfiles = 'a'", "stream"),
        ("[sources.x]\nfiles = 'a'\nstream = 's'\nformt = 'x'", "did you mean format"),
        ("[sources.x]\nfiles = { pattern = 'a', afer = 'keep' }\nstream = 's'", "after"),
        ("[sources.x]\nfiles = 'a'\nstream = 's'\nbad_rows = 'drop'", "stop"),
        ("[sources.x]\nfiles = 'a'\nstream = 's'\nbad_rows_most = 'many'", "1%"),
        ("[sources.x]\nfiles = 'a'\nstream = 's'\ncolumns = { a = 1 }", "columns"),
        ("[sources.x]\nfiles = '${ENV:NOWHERE_AT_ALL}'\nstream = 's'", "NOWHERE_AT_ALL"),
        ("[sources.'a b']\nfiles = 'a'\nstream = 's'", "letters"),
        ("[sources.x]\nfiles = 5\nstream = 's'", "table"),
        ("[sources", "sources.toml"),
        ("[defaults]\ntls_cert = 'a'\n[sources.x]\nfiles = 'a'\nstream = 's'", "cert and key"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(BadSettings, match=message):
        load(tmp_path, text)


@pytest.mark.parametrize(
    "line",
    [
        "token = 'tiger'",
        "postgres = { dsn = 'tiger', slot = 's', table = 'a.b' }",
        "kafka = { servers = 'b', topic = 't', sasl_password = 'tiger' }",
        "kafka = { servers = 'b', topic = 't', client_secret = 'tiger' }",
    ],
)
def test_secrets_are_refused_and_not_shown(tmp_path: Path, line: str) -> None:
    with pytest.raises(BadSettings, match="_file") as caught:
        load(tmp_path, f"[sources.x]\nstream = 's'\n{line}")
    assert "tiger" not in str(caught.value)


def test_properties_of_kafka(tmp_path: Path) -> None:
    path = tmp_path / "kafka.properties"
    path.write_text("# a comment\nsasl.password = ti=ger\n\n")
    assert read_properties(path) == {"sasl.password": "ti=ger"}
    for wrong in ("sasl.password tiger", "group.id=tiger"):
        path.write_text(wrong)
        with pytest.raises(BadSettings, match="line 1") as caught:
            read_properties(path)
        assert "tiger" not in str(caught.value)
