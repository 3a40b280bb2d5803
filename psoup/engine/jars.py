"""Delta's jars: downloaded once to the user's cache, and used from there without the network.

Each jar must have the SHA-256 that jars.sha256 names, or none of them is used.

`python -m psoup.engine.jars` fetches them ahead of the first session.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from psoup.engine.errors import JarsUnavailable

PACKAGE = "io.delta:delta-spark_4.2_2.13:4.4.0"
# Written by `sha256sum *.jar` in the folder of the jars, whenever PACKAGE changes.
HASHES = Path(__file__).with_name("jars.sha256")

log = logging.getLogger(__name__)


def delta_jars() -> list[Path]:
    """Return the jars that a Delta session needs; the first call on a machine downloads them.

    Concurrent processes wait for one download. Raise JarsUnavailable if it fails.
    """
    _, artifact, version = PACKAGE.split(":")
    folder = _cache() / f"{artifact}-{version}"
    if not folder.is_dir():
        with _locked(folder.with_name(f"{folder.name}.lock")):
            # Another process may have fetched the jars while this one waited for the lock.
            if not folder.is_dir():
                _fetch(folder)
    return sorted(folder.glob("*.jar"))


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "psoup" / "jars"


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fetch(folder: Path) -> None:
    """Let Spark's resolver download into a temporary folder, which becomes `folder` if complete."""
    log.warning("Fetching Delta's jars for Spark: about 90 MB, once. This takes a minute or less.")
    with tempfile.TemporaryDirectory(dir=folder.parent) as draft:
        application = Path(draft) / "nothing.py"
        application.touch()
        spark_home = Path(pyspark.__file__).parent
        command = [str(spark_home / "bin" / "spark-submit"), "--packages", PACKAGE]
        command += ["--conf", f"spark.jars.ivy={draft}/ivy", str(application)]
        environment = os.environ | {"SPARK_HOME": str(spark_home), "PYSPARK_PYTHON": sys.executable}
        done = subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        jars = Path(draft) / "ivy" / "jars"
        if done.returncode != 0 or not any(jars.glob("*delta-spark*.jar")):
            raise JarsUnavailable(
                "Delta's jars could not be fetched. Connect to the network (Maven Central) and "
                f"try again.\n{(done.stderr or done.stdout)[-2000:]}"
            )
        check_jars(jars)
        # Both are in the cache, so this is a rename: the folder appears complete, or not at all.
        shutil.move(jars, folder)
    log.warning("Delta's jars are in %s.", folder)


def check_jars(folder: Path) -> None:
    """Raise JarsUnavailable unless the folder holds exactly the jars that were recorded."""
    recorded = dict(line.split()[::-1] for line in HASHES.read_text().splitlines())
    fetched = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.glob("*.jar")
    }
    differing = sorted(name for name, _ in recorded.items() ^ fetched.items())
    if differing:
        raise JarsUnavailable(
            f"{differing[0]} is not the file that this version was tested with: its SHA-256 "
            f"differs from {HASHES.name}, or it is missing or new there. No jar was used. Find out "
            "why before you try again: a package registry or proxy may have been tampered with."
        )


def main() -> int:
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        delta_jars()
    except JarsUnavailable as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
