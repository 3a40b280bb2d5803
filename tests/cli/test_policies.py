"""psoup policy against a server in this process."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import Run
