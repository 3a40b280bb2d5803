"""Stores that older programs wrote are opened by this one, answer as they did, and go on."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

from client_sdk import Client, NotFound
from tests.formats.story import HERE, LATER, QUERIES, answers, publish, trips
from tests.support.system.processes import RunningStore

pytestmark = [pytest.mark.process, pytest.mark.spark]

SAMPLES = sorted(path.name.removesuffix(".tar.xz") for path in HERE.glob("*.tar.xz"))


def assert_says(client: Client, told: dict[str, object]) -> None:
    """Everything the sample was asked when it was made has the answer it had then."""
    handles = told["handles"]
    assert isinstance(handles, dict)
    expected = {name: told[name] for name in ("answers", "streams", "registrations")}
    assert answers(client, handles) == expected


@pytest.mark.parametrize("name", SAMPLES)
def test_a_stored_sample_answers_as_it_did_and_goes_on(name: str, tmp_path: Path) -> None:
    with tarfile.open(HERE / f"{name}.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    told = json.loads((HERE / f"{name}.json").read_text())
    with RunningStore(tmp_path) as running:
        running.start_server()
        with running.client() as client:
            assert_says(client, told)
            with pytest.raises(NotFound, match="lease"):
                client.invoke(bytes.fromhex(told["expired"]))
            running.start_engine()
            running.wait_until_matched(client)
            assert_says(client, told)
            assert client.publish("trips", trips(8), publisher="trips", sequence=8).duplicate
            publish(client, 9)
            running.wait_until_matched(client)
            running.start_server()
            with running.client(1) as other:
                for name, sql in (QUERIES | LATER).items():
                    if name in told["handles"]:  # what the language of its time could say
                        handle = bytes.fromhex(told["handles"][name])
                        assert client.invoke(handle).rows == other.ask(sql).rows, sql
