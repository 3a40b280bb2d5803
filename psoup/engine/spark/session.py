"""The Spark session with its measured settings, and the temporary folder it works in.

docs/explanation/decisions/engine.md has the measurements.

An engine removes its folder when it ends. The next engine of the store removes that of a killed
one.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

import psoup
from psoup import umask
from psoup.engine.jars import delta_jars

_SETTINGS: dict[str, bool | float | int | str | None] = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.session.timeZone": "UTC",
    "spark.databricks.delta.snapshotPartitions": "1",
    # Spark's own reader does not verify the checksums of pages by default.
    "spark.hadoop.parquet.page.verify-checksum.enabled": "true",
    "spark.python.unix.domain.socket.enabled": "true",
    # Bulk jobs run beside the steps, in a pool of their own.
    "spark.scheduler.mode": "FAIR",
    "spark.python.daemon.module": "psoup.engine.daemon",
    # On a busy machine a new Python worker may take longer than the 15 s that Spark waits.
    "spark.python.authenticate.socketTimeout": "120s",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}
# The options of the driver's JVM, unless this variable is set. It schedules: what the second
# compiler takes, it does not save.
_JVM_VARIABLE, _JVM_OPTIONS = "SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1"


def open_session(scratch: Path, *, master: str = "local[*]", ui: bool = False) -> SparkSession:
    """Return a session that reads Delta tables; it takes 5 to 10 s to start.

    `scratch` is for Spark's temporary files. The first session on a machine downloads
    Delta's jars. Python workers get this process's Python and packages. On a cluster these must be
    at the same path on every machine, unless the variable PYSPARK_PYTHON names another Python that
    has the packages.
    """
    # `local-cluster`, Spark's own for tests, is a cluster: its executors are other processes.
    is_local = master.startswith("local") and not master.startswith("local-cluster")
    builder = (
        SparkSession.builder.master(master)
        .appName("psoup")
        .config(map=_SETTINGS)
        .config("spark.jars", ",".join(str(jar) for jar in delta_jars()))
        .config(f"spark.executorEnv.{umask.VARIABLE}", f"{umask.current_umask():03o}")
        .config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
        .config("spark.local.dir", str(scratch / "local"))
    )
    if is_local or not os.environ.get("PYSPARK_PYTHON"):
        packages = _python_path()
        os.environ["PYSPARK_PYTHON"] = sys.executable
        os.environ["PYTHONPATH"] = packages
        builder = builder.config("spark.executorEnv.PYTHONPATH", packages)
    if not master.startswith(("spark://", "local-cluster")):
        # Spark makes the secret itself, except on a standalone cluster: its operator chooses one
        # for all machines, in their spark-defaults.conf (docs/how-to/spark-cluster.md).
        builder = builder.config("spark.authenticate", "true")
    if is_local:
        builder = builder.config("spark.driver.host", "127.0.0.1")
        builder = builder.config("spark.sql.shuffle.partitions", "2")
    if ui:
        builder = builder.config("spark.ui.enabled", "true")
    os.environ.setdefault(_JVM_VARIABLE, _JVM_OPTIONS)
    return builder.getOrCreate()


def _python_path() -> str:
    """Return the folder of our packages, followed by those that PYTHONPATH already names."""
    packages = str(Path(psoup.__file__ or "").resolve().parents[1])
    parts = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return os.pathsep.join([packages, *(part for part in parts if part and part != packages)])


def make_scratch(store_id: str) -> Path:
    """Make a temporary folder, named after the store and this process; remove those of processes
    that have ended."""
    prefix = f"psoup-engine-{store_id}-"
    for folder in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        owner = folder.name.removeprefix(prefix).partition("-")[0]
        if owner.isdigit() and not _is_running(int(owner)):
            shutil.rmtree(folder, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"{prefix}{os.getpid()}-"))


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        # The process runs, as another user.
        pass
    return True
