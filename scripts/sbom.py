"""Print a software bill of materials of this checkout: CycloneDX 1.6, JSON.

Nothing in it depends on the machine or the moment, so two runs over one checkout are equal.
"""

from __future__ import annotations

import importlib.metadata
import json
import re
import sys
import tomllib
import uuid
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


def python_components() -> list[dict[str, Any]]:
    """Return a component for each line of constraints.txt."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [line.split("==") for line in lines if line and not line.startswith("#")]
    return [_python_component(name, version) for name, version in pins]


def _python_component(name: str, version: str) -> dict[str, Any]:
    purl = f"pkg:pypi/{re.sub(r'[-_.]+', '-', name).lower()}@{version}"
    component = {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}
    licence = _licence(name)
    return component | ({"licenses": [{"license": {"name": licence}}]} if licence else {})


def _licence(name: str) -> str:
    """Return the licence that an installed package names, in one line; empty if it names none."""
    try:
        metadata = importlib.metadata.metadata(name)
    except importlib.metadata.PackageNotFoundError:
        return ""
    text = metadata.get("License-Expression") or metadata.get("License") or ""
    if text and "\n" not in text and len(text) < 100:
        return text
    classifiers = metadata.get_all("Classifier") or []
    names = [
        classifier.rpartition(" :: ")[2]
        for classifier in classifiers
        if classifier.startswith("License ::")
    ]
    return ", ".join(names)


def jar_components() -> list[dict[str, Any]]:
    """Return a component for each jar in psoup/engine/jars.sha256.

    The file names are group_artifact-version.jar: a group has no underscore, a version begins with
    a digit after the last hyphen that is followed by one.
    """
    components = []
    for line in (ROOT / "psoup" / "engine" / "jars.sha256").read_text().splitlines():
        digest, file = line.split()
        match = re.fullmatch(r"([^_]+)_(.+?)-(\d[^_]*)\.jar", file)
        if match is None:
            raise ValueError(f"{file} does not name a group, an artifact and a version")
        group, artifact, version = match.groups()
        purl = f"pkg:maven/{group}/{artifact}@{version}"
        components.append(
            {
                "type": "library",
                "bom-ref": purl,
                "group": group,
                "name": artifact,
                "version": version,
                "purl": purl,
                "hashes": [{"alg": "SHA-256", "content": digest}],
            }
        )
    return components


def bill() -> dict[str, Any]:
    """Return the whole document."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    components = python_components() + jar_components()
    name = f"{project['name']}@{project['version']}"
    content = json.dumps(components, sort_keys=True)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, name + content)}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": f"pkg:pypi/{name}",
                "name": project["name"],
                "version": project["version"],
                "purl": f"pkg:pypi/{name}",
                "licenses": [{"license": {"id": project["license"]}}],
            }
        },
        "components": components,
        "dependencies": [
            {"ref": f"pkg:pypi/{name}", "dependsOn": [package["bom-ref"] for package in components]}
        ],
    }


if __name__ == "__main__":
    json.dump(bill(), sys.stdout, indent=1)
    print()
