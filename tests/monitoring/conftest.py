"""The Prometheus of a module, and the store that an incident happens to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.docs.markdown import ROOT
from tests.support.incidents import Incident
from tests.support.prometheus import Prometheus, running_prometheus


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """A Prometheus with the alerts, for all tests of a module; it scrapes what each one names."""
    folder = tmp_path_factory.mktemp("prometheus")
    with running_prometheus(folder, {}, ROOT / "deploy/prometheus/rules.yml") as running:
        yield running


@pytest.fixture
def incident(tmp_path: Path, prometheus: Prometheus) -> Iterator[Incident]:
    with Incident(tmp_path, prometheus) as incident:
        yield incident
