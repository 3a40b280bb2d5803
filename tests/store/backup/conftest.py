from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.store.backup.life import Life


@pytest.fixture
def life(tmp_path: Path) -> Iterator[Life]:
    life = Life(tmp_path / "first")
    yield life
    life.close()
