"""Build a source distribution and from it wheels, and try each extra in a fresh environment.

    scripts/wheels [--extras base,server] [PYTHON …]

Building needs no network. Installing needs a package index, or PIP_FIND_LINKS and PIP_NO_INDEX. For
each interpreter (by default the one that runs this) and each extra: install the wheel, `psoup
--version`, import what the extra is for, and a session against a server.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_TRACES = """
import os
os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = "http://127.0.0.1:1"
from psoup.tracing import open_tracing
open_tracing("server")
"""
# What each extra is for: a program that fails without it. Those for working on PSoup are left out.
EXTRAS = {
    "base": "import client_sdk, psoup.cli",
    "offline": "import client_sdk.copies._query, querystem.evaluate",
    "server": "import psoup.server.main",
    "web": "import httptools, uvicorn",
    "metrics": "import prometheus_client",
    "otel": _TRACES,
    "engine": "import psoup.engine.engine",
    "encrypted": "import sqlcipher3",
    "delta": "import deltalake",
    "kafka": "import confluent_kafka",
    "postgres": "import psycopg2",
    "s3": "import psoup.store.backup.objects",
    "spark": "import psoup.spark",
}
_BUILD = "import sys, setuptools.build_meta as b; print(getattr(b, sys.argv[1])(sys.argv[2]))"


def build(backend: str, source: Path, target: Path, python: Path) -> Path:
    """Run `build_sdist` or `build_wheel` of the build back-end in a folder; return the file."""
    target.mkdir(exist_ok=True)
    done = _run([python, "-c", _BUILD, backend, target], source)
    return target / done.stdout.split()[-1]


def build_all(folder: Path, python: Path) -> Path:
    """Build the source distribution, and a wheel for an interpreter from it; return the wheel."""
    # From a copy, because setuptools writes into the folder it builds.
    listed = _run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], ROOT)
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (copy := folder / "checkout" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy)
    sdist = build("build_sdist", folder / "checkout", folder / "dist", Path(sys.executable))
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    tools = _environment(folder / "build", python)
    _run([tools, "-m", "pip", "install", "-q", "setuptools>=77"], folder)
    return build("build_wheel", folder / sdist.name.removesuffix(".tar.gz"), folder / "dist", tools)


def try_extra(folder: Path, python: Path, wheel: Path, extra: str, server: str) -> None:
    """Install an extra of the wheel in a fresh environment, import it, and hold a session."""
    interpreter = _environment(folder / f"env-{extra}", python)
    name = str(wheel) if extra == "base" else f"{wheel}[{extra}]"
    _run([interpreter, "-m", "pip", "install", "-q", name], folder)
    _run([interpreter, "-c", EXTRAS[extra]], folder)
    command = interpreter.with_name("psoup")
    _run([command, "--version"], folder)
    (folder / "rows.csv").write_text("a\n1\n2\n")
    stream = f"rows_of_{extra}"
    session = [
        ["stream", "create", f"CREATE STREAM {stream} (a BIGINT)"],
        ["publish", stream, "rows.csv"],
        ["ask", f"SELECT a + 40 AS b FROM {stream} WHERE a > 1 ROWS 5", "--format", "csv"],
    ]
    for words in session:
        done = _run([command, "--target", server, *words], folder)
    if done.stdout.split()[-1:] != ["42"]:
        raise SystemExit(f"{extra}: {done.stdout!r} is not the answer")


def _environment(folder: Path, python: Path) -> Path:
    """Make a virtual environment of an interpreter; return its interpreter."""
    if python == Path(sys.executable):
        venv.create(folder, with_pip=True)
    else:
        _run([python, "-m", "venv", folder], folder.parent)
    return folder / "bin" / "python"


def _run(command: Sequence[str | Path], folder: Path) -> subprocess.CompletedProcess[str]:
    words = [str(word) for word in command]
    # A checkout on the path would hide what the wheel lacks.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        words, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(words)} failed:\n{done.stdout}{done.stderr}")
    return done


def try_python(folder: Path, python: Path, extras: Sequence[str]) -> None:
    """Build for an interpreter, start a server of its own, and try the extras."""
    wheel = build_all(folder, python)
    serving = _environment(folder / "serving", python)
    _run([serving, "-m", "pip", "install", "-q", f"{wheel}[server]"], folder)
    command = [serving, "-m", "psoup.server", "--store", folder / "store", "--port", "0"]
    process = subprocess.Popen(
        [str(word) for word in command], cwd=folder, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        address = process.stdout.readline().split()[-1]
        for extra in extras:
            try_extra(folder, python, wheel, extra, address)
            print(f"{python}: {extra} works", flush=True)
    finally:
        process.terminate()
        process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--extras", default=",".join(EXTRAS), metavar="NAMES")
    parser.add_argument("python", nargs="*", type=Path, default=[Path(sys.executable)])
    options = parser.parse_args()
    extras = options.extras.split(",")
    if unknown := set(extras) - EXTRAS.keys():
        parser.error(f"no such extra: {', '.join(sorted(unknown))}")
    for python in options.python:
        with tempfile.TemporaryDirectory(prefix="psoup-wheels-") as folder:
            try_python(Path(folder), python, extras)


if __name__ == "__main__":
    main()
