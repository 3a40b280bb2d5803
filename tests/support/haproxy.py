"""A real load balancer: HAProxy of the machine, or Debian's package, unpacked and not installed."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

_PACKAGES = ("haproxy", "liblua5.3-0", "libopentracing-c-wrapper0", "libopentracing1")
_SECONDS = 60.0


def _find() -> tuple[str, Mapping[str, str]]:
    """Return the program, and its environment; skip the test if there is none to be had."""
    if program := shutil.which("haproxy"):
        return program, os.environ
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    place = cache / "psoup" / "haproxy"
    if not place.exists() and shutil.which("apt-get") and shutil.which("dpkg"):
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place.parent) as folder:
            download = ["apt-get", "download", "-qq", *_PACKAGES]
            subprocess.run(download, cwd=folder, check=False, capture_output=True)
            for package in Path(folder).glob("*.deb"):
                subprocess.run(["dpkg", "--extract", package, f"{folder}/unpacked"], check=True)
            if Path(f"{folder}/unpacked/usr/sbin/haproxy").exists():
                shutil.move(f"{folder}/unpacked", place)
    if not place.exists():
        pytest.skip("no HAProxy on this machine, and none could be fetched with apt-get")
    libraries = {str(path.parent) for path in (place / "usr/lib").rglob("*.so*")}
    return str(place / "usr/sbin/haproxy"), os.environ | {"LD_LIBRARY_PATH": ":".join(libraries)}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running(configuration: str, folder: Path, port: int) -> Iterator[None]:
    """Run HAProxy with a configuration until the end of the block; it answers on the port."""
    program, environment = _find()
    file = folder / "haproxy.cfg"
    file.write_text(configuration)
    with (folder / "haproxy.log").open("wb") as log:
        process = subprocess.Popen(
            [program, "-db", "-f", str(file)], env=environment, stdout=log, stderr=log
        )
    try:
        deadline = time.monotonic() + _SECONDS
        while True:
            assert process.poll() is None, (folder / "haproxy.log").read_text()
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except ConnectionRefusedError:
                assert time.monotonic() < deadline
                time.sleep(0.05)
        yield
    finally:
        process.kill()
        process.wait()
