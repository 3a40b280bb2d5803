"""Manifests as a cluster would get them, and the schemas of Kubernetes to check them with."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT

FOLDER = ROOT / "deploy" / "kubernetes"
# 17,000 files of schemas: too many for every clone, so they are fetched for this test alone.
_VALIDATOR = "kubernetes-validate==1.37.0"

Manifest = dict[str, Any]


@cache
def _packages() -> Path | None:
    """Return a folder with the validator and what it needs; None if it can't be fetched."""
    cache_folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    place = cache_folder / "psoup" / "kubernetes"
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place.parent) as folder:
            target = f"{folder}/packages"
            command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", target]
            done = subprocess.run([*command, _VALIDATOR], capture_output=True, check=False)
            if done.returncode == 0:
                shutil.move(target, place)
    return place if place.exists() else None


def _run(*arguments: str, text: str) -> subprocess.CompletedProcess[str]:
    """Run this Python with the validator's packages."""
    if (place := _packages()) is None:
        pytest.skip(f"pip could not fetch {_VALIDATOR}")
    return subprocess.run(
        [sys.executable, *arguments],
        input=text,
        env={**os.environ, "PYTHONPATH": str(place)},
        capture_output=True,
        text=True,
        check=False,
    )


def validate(text: str, version: str) -> str:
    """Return what is wrong with manifests in a version of Kubernetes; empty if nothing is."""
    done = _run("-m", "kubernetes_validate", "-k", version, "--strict", "-", text=text)
    return done.stdout + done.stderr if done.returncode else ""


def render(folder: Path) -> str:
    """Return the manifests of a folder with `kustomization.yaml`; skip the test without kubectl."""
    if shutil.which("kubectl") is None:
        pytest.skip("there is no kubectl here")
    done = subprocess.run(
        ["kubectl", "kustomize", str(folder)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def parse(text: str) -> list[Manifest]:
    """Return manifests as objects."""
    program = "import json, sys, yaml; print(json.dumps(list(yaml.safe_load_all(sys.stdin))))"
    done = _run("-c", program, text=text)
    assert done.returncode == 0, done.stderr
    manifests: list[Manifest] = json.loads(done.stdout)
    return manifests
