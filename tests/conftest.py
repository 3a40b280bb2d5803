"""Fixtures every test may use.

Hypothesis runs the same examples each time, so that a red run is about the change at hand.
`--hypothesis-profile thorough` runs more of them, as `scripts/test --all` does, and `explore` looks
for new ones.
"""

from __future__ import annotations

import gc
import itertools
import os
import secrets
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from datastem import native
from tests.support.dealing import Dealing, group_tests
from tests.support.lengths import SHORT_EXAMPLES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from client_sdk import Client
    from tests.support.browser import Browser
    from tests.support.server.process import ServerProcess
    from tests.support.system.processes import RunningStore

ROOT = Path(__file__).resolve().parents[1]

# For every JVM of the run, also those of engines that tests start. Tests are short: a JVM that
# compiles less starts with half the processor time, and few threads collect little garbage.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

# A shell lets its background jobs ignore Ctrl-C, and so would all processes that tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("default", derandomize=True, deadline=None, max_examples=SHORT_EXAMPLES)
settings.register_profile("thorough", derandomize=True, deadline=None, max_examples=100)
settings.register_profile("explore", deadline=None, max_examples=2000, print_blob=True)
settings.load_profile("default")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark tests by their fixtures, so that `-m "not spark"` misses none."""
    for item in items:
        names = getattr(item, "fixturenames", ())
        for fixture, mark in (("spark", "spark"), ("shared_data", "shared")):
            if fixture in names:
                item.add_marker(mark)
    group_tests(items, name_groups=getattr(config.option, "loadgroup", False))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect no garbage while modules are imported, and leave them out of it ever after."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def pytest_unconfigure() -> None:
    """Let modules see their objects end."""
    gc.unfreeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Deal the tests to several processes as tests/support/dealing.py says."""
    return Dealing(config, log)


@pytest.fixture(params=["native", "numpy"])
def core_path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run a test with the native core, if it was built, and again without."""
    path = str(request.param)
    if path == "numpy":
        monkeypatch.setattr(native, "core", None)
    elif native.core is None:
        pytest.skip("the native core was not built, or PSOUP_NATIVE is 0")
    return path


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real rows beside the repository; a test that asks for it skips without it."""
    path = ROOT.parent / "shared" / "data"
    if not path.is_dir():
        pytest.skip("needs ../shared (not part of a user's clone)")
    return path


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The one Spark session of the run, made the way the engine makes its own."""
    from psoup.engine.spark.session import open_session

    session = open_session(tmp_path_factory.mktemp("spark"))
    # To compile a plan takes longer than to interpret it for a few rows. Engines that run as
    # processes, as that of `running`, compile theirs.
    session.conf.set("spark.sql.codegen.wholeStage", "false")
    session.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStore]:
    """A server and an engine, for all tests that need no more; no one may stop either."""
    from tests.support.system.processes import RunningStore

    with RunningStore(tmp_path_factory.mktemp("running")) as store:
        store.start_server("--wait", "300")  # a first step may take long on a busy machine
        store.start_engine()
        yield store


# Shared servers live as long as the run, not as long as a package: files of several packages take
# turns in a process, and a server would start again for each of them.
@pytest.fixture(scope="session")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server without an engine, for all tests that need no more; no one may stop it. Each test
    uses a tenant of its own."""
    from tests.support.server.process import ServerProcess

    server = ServerProcess(tmp_path_factory.mktemp("shared") / "store")
    yield server
    server.stop()


@pytest.fixture
def counted_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams, views, composites and policies of this process have the ids 1, 2, …, for tests that
    name them."""
    count_ids(monkeypatch)


def count_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do what `counted_ids` does, for a fixture of a wider scope."""
    ids = itertools.count(1)
    monkeypatch.setattr("psoup.write.ids.secrets.randbits", lambda bits: next(ids))


@pytest.fixture
def tenant() -> str:
    """A tenant that no other test uses, so that names are free."""
    return f"t{secrets.token_hex(4)}"


@pytest.fixture
def client(running: RunningStore, tenant: str) -> Iterator[Client]:
    from client_sdk import Client

    with Client(running.targets[0], tenant=tenant) as client:
        yield client


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    """A page of a real browser; a test that asks for it skips without one."""
    from tests.support.browser import Browser, find_browser

    program = find_browser()
    if program is None:
        pytest.skip("no Chromium: scripts/test --all fetches one, PSOUP_BROWSER names one")
    with Browser(program, tmp_path / "browser") as browser:
        yield browser
