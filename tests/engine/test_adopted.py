"""`psoup.engine.run`: the engine on a session that exists."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import psoup.engine
from psoup.engine.errors import SecondEngine, UnsuitableSession
from psoup.engine.spark import adopted
from psoup.engine.spark.adopted import adopt
from psoup.store import Store
from tests.support.engine.author import READINGS, Author, above, readings
from tests.support.engine.reading import matched

ROOT = Path(__file__).parents[2]


@contextmanager
def running(store: Store, spark: SparkSession, **options: Any) -> Iterator[None]:
    ending, failures = threading.Event(), list[BaseException]()

    def work() -> None:
        try:
            psoup.engine.run(store.root, spark=spark, ending=ending, **options)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join()
        assert not failures, failures


@pytest.mark.spark
def test_it_runs_on_a_given_session_and_leaves_it_as_it_was(
    store: Store, author: Author, spark: SparkSession
) -> None:
    user_session = spark.newSession()
    user_session.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    stream = author.create(READINGS)
    _, predicate = author.register(stream, above(1.0))
    position = author.publish(stream, readings([1, 2], [1.0, 2.0]))
    with running(store, user_session):
        while store.epochs.latest()[1].position < position:
            time.sleep(0.01)
        with pytest.raises(SecondEngine, match="already runs"):
            psoup.engine.run(str(store.root), spark=user_session)
    assert matched(store, predicate) == [1]
    assert user_session.conf.get("spark.sql.session.timeZone") == "Asia/Tokyo"
    assert user_session.range(3).count() == 3, "the session is open"
    # The lock is free again, and a stand-by that nobody is before starts at once.
    later = author.publish(stream, readings([3], [3.0]))
    with running(store, user_session, standby=True):
        while store.epochs.latest()[1].position < later:
            time.sleep(0.01)


@pytest.mark.spark
def test_the_engine_s_own_session_has_its_settings(store: Store, spark: SparkSession) -> None:
    user_session = spark.newSession()
    user_session.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    session = adopt(user_session, store)
    for name, value in adopted._RUNTIME_SETTINGS.items():
        assert session.conf.get(name) == value
    assert session.sparkContext is user_session.sparkContext


@pytest.mark.spark
def test_missing_settings_and_stores_are_named(
    store: Store,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(adopted, "_ADVISED_SETTINGS", (("spark.x", "y", "z is slow"),))
    adopt(spark, store)
    assert "start Spark with spark.x=y: without it, z is slow" in caplog.text
    other_store = Store.open(tmp_path / "other", create=True, sync=False)
    shutil.rmtree(other_store.root)
    with pytest.raises(UnsuitableSession, match=f"can't read the store at {other_store.root}"):
        adopt(spark, other_store)
    Store.open(other_store.root, create=True, sync=False)
    with pytest.raises(UnsuitableSession, match=f"has another store at {other_store.root}"):
        adopt(spark, other_store)


@pytest.mark.spark
@pytest.mark.process
@pytest.mark.long
def test_an_executor_without_the_package_is_named(store: Store) -> None:
    """Without our settings, as a platform makes a session. The Python of the workers is the one
    that the environment of the tests was made from."""
    if sys.base_prefix == sys.prefix:
        pytest.skip("there is only one Python, and it has the package")
    code = f"""
from pyspark.sql import SparkSession
spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.ui.enabled", "false")
    .getOrCreate()
)
import psoup.engine
from psoup.engine.errors import UnsuitableSession
try:
    psoup.engine.run({str(store.root)!r}, spark=spark)
except UnsuitableSession as error:
    print("UNSUITABLE", error)
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={
            "PATH": os.environ["PATH"],
            "PYSPARK_PYTHON": str(Path(sys.base_prefix) / "bin" / "python3"),
            "PYSPARK_DRIVER_PYTHON": sys.executable,
        },
        capture_output=True,
        text=True,
    )
    assert "can't import psoup[engine]: No module named" in done.stdout, done.stderr


def test_a_session_of_spark_connect_is_refused(store: Store) -> None:
    class Connected:
        @property
        def sparkContext(self) -> None:  # noqa: N802
            raise AttributeError("JVM_ATTRIBUTE_NOT_SUPPORTED")

    connected: Any = Connected()
    with pytest.raises(UnsuitableSession, match="Spark Connect"):
        adopt(connected, store)


def test_the_function_is_not_hidden_by_a_module() -> None:
    code = (
        "import sys, importlib, pkgutil, psoup.engine\n"
        "assert 'pyspark' not in sys.modules and 'numpy' not in sys.modules\n"
        "for module in pkgutil.walk_packages(psoup.engine.__path__, 'psoup.engine.'):\n"
        "    if not module.name.endswith(('__main__', 'daemon')):\n"
        "        importlib.import_module(module.name)\n"
        "assert callable(psoup.engine.run)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
