from __future__ import annotations

from pathlib import Path

import pytest

from psoup.store import Store
from tests.support.engine.author import Author


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(tmp_path / "store", create=True, sync=False)


@pytest.fixture
def author(store: Store) -> Author:
    return Author(store)
