"""Tools written in Go, built where Go is: a test that wants one skips elsewhere, and says why."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest


def install(folder: Path, *packages: str) -> str:
    """Return a PATH on which the tools of `packages` come first, built into `folder`.

    Go keeps what it downloads and compiles for the next time.
    """
    if shutil.which("go") is None:
        pytest.skip("needs Go")
    for package in packages:
        try:
            built = subprocess.run(
                ["go", "install", package],
                env=os.environ | {"GOBIN": str(folder)},
                capture_output=True,
                text=True,
                timeout=250,
                check=False,
            )
        except subprocess.TimeoutExpired:
            pytest.skip(f"{package} was not built in time")
        if built.returncode:
            errors = built.stderr[-200:]
            pytest.skip(f"{package} can't be built, perhaps without a network: {errors}")
    return f"{folder}{os.pathsep}{os.environ['PATH']}"
