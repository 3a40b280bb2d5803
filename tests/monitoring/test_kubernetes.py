"""The manifests of deploy/kubernetes: by the schemas of Kubernetes, and by what they name."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.kubernetes import FOLDER, Manifest, parse, render, validate

# Another tool, and packages that have to be fetched once.
pytestmark = pytest.mark.long

VERSIONS = ("1.29", "1.33", "1.37")
STORES = ("base", "several")


def pods(manifests: list[Manifest]) -> Iterator[Manifest]:
    """Yield the templates of the pods."""
    for manifest in manifests:
        if manifest["kind"] in ("StatefulSet", "Deployment"):
            yield manifest["spec"]["template"]


def ports(template: Manifest) -> set[str]:
    containers = template["spec"]["containers"]
    return {port["name"] for container in containers for port in container["ports"]}


def name_of(manifest: Manifest) -> str:
    return str(manifest["metadata"]["name"])


def values(part: Any, key: str) -> Iterator[Any]:
    """Yield the values of a key, anywhere in a manifest."""
    if isinstance(part, dict):
        for name, value in part.items():
            if name == key:
                yield value
            yield from values(value, key)
    elif isinstance(part, list):
        for value in part:
            yield from values(value, key)


@pytest.fixture
def secrets(tmp_path: Path) -> list[Manifest]:
    """The secrets of a copy of the folder that has the files."""
    folder = shutil.copytree(FOLDER / "secrets", tmp_path / "secrets")
    for name in ("tls.crt", "tls.key", "token"):
        (folder / name).write_text("secret\n")
    return parse(render(folder))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", STORES)
def test_the_schemas_hold(name: str, version: str) -> None:
    text = render(FOLDER / name)
    assert validate(text, version) == ""
    wrong = text.replace("clusterIP: None", "clusterIp: None")
    assert "clusterIp" in validate(wrong, version)


@pytest.mark.parametrize("name", STORES)
def test_what_manifests_name_exists(name: str, secrets: list[Manifest]) -> None:
    manifests = parse(render(FOLDER / name))
    claims = {name_of(manifest) for manifest in manifests if "Claim" in manifest["kind"]}
    secret_names = {name_of(secret) for secret in secrets}
    for manifest in manifests:
        claim_templates = manifest["spec"].get("volumeClaimTemplates", [])
        for template in pods([manifest]):
            volumes = template["spec"]["volumes"]
            names = {volume["name"] for volume in volumes}
            names |= {name_of(claim) for claim in claim_templates}
            mounts = {entry["name"] for part in values(template, "volumeMounts") for entry in part}
            assert mounts == names
            assert set(values(volumes, "claimName")) <= claims
            assert set(values(volumes, "secretName")) <= secret_names
            for container in template["spec"]["containers"]:
                own = {port["name"] for port in container["ports"]}
                probes = {get["port"] for get in values(container, "httpGet")}
                assert container["livenessProbe"] and probes <= own
            labels = manifest["spec"]["selector"]["matchLabels"]
            assert labels == template["metadata"]["labels"]


@pytest.mark.parametrize("name", STORES)
def test_services_and_scrapes_reach_ports_of_pods(name: str) -> None:
    manifests = parse(render(FOLDER / name))
    (monitor,) = parse(render(FOLDER / "monitoring"))
    services = [manifest for manifest in manifests if manifest["kind"] == "Service"]
    for service in services:
        selector = service["spec"]["selector"].items()
        (template,) = [
            pod for pod in pods(manifests) if selector <= pod["metadata"]["labels"].items()
        ]
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports(template)
        assert monitor["spec"]["selector"]["matchLabels"].items() <= (
            service["metadata"]["labels"].items()
        )
    scraped = {endpoint["port"] for endpoint in monitor["spec"]["endpoints"]}
    served = {port["name"] for service in services for port in service["spec"]["ports"]}
    assert scraped == {"metrics", "engine-metrics"} and scraped <= served


def test_several_servers_have_one_engine_over_one_volume() -> None:
    manifests = parse(render(FOLDER / "several"))
    by_kind = {manifest["kind"]: manifest["spec"] for manifest in manifests}
    servers, engine = by_kind["StatefulSet"], by_kind["Deployment"]
    assert servers["replicas"] > 1 and "volumeClaimTemplates" not in servers
    assert [part["name"] for part in servers["template"]["spec"]["containers"]] == ["server"]
    assert engine["replicas"] == 1 and engine["strategy"] == {"type": "Recreate"}
    assert by_kind["PersistentVolumeClaim"]["accessModes"] == ["ReadWriteMany"]
    assert set(values([servers, engine], "claimName")) == {"psoup-store"}
