"""Secrets that sources are given in files are in no output, whatever goes wrong."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from client_sdk import Client, Credentials
from psoup.cli import cli
from tests.server.identity.conftest import first_key
from tests.source.conftest import Sources
from tests.support.authority import Authority
from tests.support.server.process import ServerProcess

pytestmark = [pytest.mark.process, pytest.mark.long]

_PLANTED = "planted-tiger"
_WRONG_TOKEN = "psk_0123456789abcdef_" + "tiger" * 8 + "xyz"
_FILES = {
    "dsn": f"host=127.0.0.1 port=1 user=u dbname=d password={_PLANTED}",
    "no.dsn": f"postgres//u:{_PLANTED}@h d",
    "kafka.properties": f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
    f"sasl.username=u\nsasl.password={_PLANTED}\nsocket.timeout.ms=1000\n",
    "no.properties": f"sasl.password {_PLANTED}\n",
    "wrong.properties": f"sasl.mechanism=NONE\nno.such.setting={_PLANTED}\n",
    "storage.json": json.dumps({"aws_secret_access_key": _PLANTED}),
    "no.json": f"aws_secret_access_key = {_PLANTED}",
    "metrics.token": "tiger-metrics-token",
    "wrong.token": _WRONG_TOKEN,
}
_POSTGRES = 'postgres = {{ dsn_file = "{}", slot = "psoup", table = "public.t" }}'
_KAFKA = 'kafka = {{ servers = "127.0.0.1:1", topic = "t", settings_file = "{}" }}'
_DELTA = 'delta = {{ table = "nothing", settings_file = "{}" }}'
_PLACES = {
    "files": 'files = "*.csv"',
    "away": _POSTGRES.format("dsn"),
    "broker": _KAFKA.format("kafka.properties"),
    "lake": _DELTA.format("storage.json"),
    "no-dsn": _POSTGRES.format("no.dsn"),
    "no-properties": _KAFKA.format("no.properties"),
    "wrong-properties": _KAFKA.format("wrong.properties"),
    "no-options": _DELTA.format("no.json"),
}


@pytest.fixture
def sources(tmp_path: Path) -> Iterator[Sources]:
    """A store behind TLS that asks for a key, and the files of secrets beside sources.toml."""
    for package in ("psycopg2", "confluent_kafka", "deltalake"):
        pytest.importorskip(package)
    authority = Authority(tmp_path / "pki")
    pair = authority.server()
    key = first_key(tmp_path / "store", "operator")
    server = ServerProcess(
        tmp_path / "store",
        *("--tls-cert", str(pair.cert), "--tls-key", str(pair.key), "--auth", "keys"),
    )
    for name, text in {**_FILES, "store.token": key}.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o600)
    (tmp_path / "a.csv").write_text("k\n1\n")
    credentials = Credentials(token_file=tmp_path / "store.token", ca=authority.ca)
    sources = Sources(tmp_path, server.address, "main")
    sources.client = Client(server.address, credentials=credentials)
    sources.client.define("CREATE STREAM s (k BIGINT) KEY (k)")
    yield sources
    sources.close()
    server.stop()


def settings(sources: Sources, token: str, **places: str) -> Path:
    """Return a file of sources with these places."""
    path = sources.folder / f"{token}-{len(places)}.toml"
    lines = [
        f'[defaults]\ntarget = "{sources.target}"\ntls_ca = "pki/ca.pem"\ntoken_file = "{token}"'
    ]
    lines += [f'[sources."{name}"]\n{place}\nstream = "s"' for name, place in places.items()]
    path.write_text("\n".join(lines))
    return path


def problems(status: Path) -> set[str]:
    """Return the sources that have stopped, or wait for something, by the status file."""
    ends = {"waiting", "stopped"}
    return {
        name
        for name, state in json.loads(status.read_text())["sources"].items()
        if ends & {state["state"], *(feed["state"] for feed in state["feeds"])}
    }


def psoup(*arguments: Any) -> str:
    return CliRunner().invoke(cli, ["source", *map(str, arguments)]).output


def test_planted_secrets(sources: Sources) -> None:
    every = settings(sources, "store.token", **_PLACES)
    stranger = settings(sources, "wrong.token", files=_PLACES["files"])
    outputs = [psoup("check", every), psoup("check", stranger)]
    metrics = ("--metrics", "127.0.0.1:0", "--metrics-token-file", sources.folder / "metrics.token")
    run = sources.psoup("source", "run", str(every), *map(str, metrics))
    address = run.wait_for(r"metrics ready on (\S+)")[1]
    status = Path(f"{every}.status")
    sources.wait_for(lambda: status.exists() and problems(status) == _PLACES.keys() - {"files"})
    sources.wait_for(lambda: sources.client.stream("s").row_count == 1)
    headers = {"Authorization": f"Bearer {_FILES['metrics.token']}"}
    request = urllib.request.Request(f"http://{address}/metrics", headers=headers)
    with urllib.request.urlopen(request) as response:
        outputs.append(response.read().decode())
    assert 'psoup_source_up{source="files"} 1.0' in outputs[-1]
    outputs.append(psoup("status", every, "--json"))
    run.stop()
    refused = sources.psoup("source", "run", str(stranger))
    assert refused.wait() == 1
    outputs += [run.text(), refused.text(), status.read_text()]
    outputs += [psoup("setup", every, name, "--print") for name in ("away", "no-dsn")]
    outputs += [psoup("skip", every, name, "--to", "earliest") for name in ("lake", "no-options")]
    outputs += [psoup("replay-aside", every, "away")]
    text = "\n".join(outputs)
    key = (sources.folder / "store.token").read_text()
    for secret in ("tiger", key, key.rpartition("_")[2]):
        assert secret not in text, [line for line in text.splitlines() if secret in line]
    assert "line 1: write name=value" in text and "does not hold a DSN" in text
