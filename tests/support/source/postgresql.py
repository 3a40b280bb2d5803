"""A PostgreSQL server with wal2json, from the system's packages."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

# The postgresql version whose wal2json is fetched.
VERSION = "15"
BINARIES = Path(f"/usr/lib/postgresql/{VERSION}/bin")
PACKAGE = f"postgresql-{VERSION}-wal2json"
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "psoup-tests"
_SECONDS = 120


class PostgresServer:
    """A server in a folder of its own, on a socket in it. It runs as `postgres` if this is root."""

    def __init__(self, folder: Path, library: Path) -> None:
        self._folder = folder
        self._log = folder / "log"
        self._user = "postgres" if os.geteuid() == 0 else None
        if self._user:
            account = pwd.getpwnam(self._user)
            os.chown(folder, account.pw_uid, account.pw_gid)
        self._run("initdb", "-D", str(folder / "data"), "-A", "trust", "-U", "postgres", "-N")
        settings = (
            f"listen_addresses = ''\nunix_socket_directories = '{folder}'\nwal_level = logical\n"
            f"dynamic_library_path = '{library}:$libdir'\nfsync = off\nmax_connections = 40\n"
        )
        with (folder / "data" / "postgresql.conf").open("a") as file:
            file.write(settings)
        self.dsn = f"host={folder} user=postgres dbname=postgres"
        self.start()

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(BINARIES / program), *arguments]
        done = subprocess.run(
            command, user=self._user, capture_output=True, timeout=_SECONDS, cwd="/", check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def start(self) -> None:
        data = str(self._folder / "data")
        # The log goes to a file: pg_ctl would wait for a pipe to be closed.
        self._run("pg_ctl", "-D", data, "-l", str(self._log), "-w", "start")

    def stop(self, mode: str = "immediate") -> None:
        self._run("pg_ctl", "-D", str(self._folder / "data"), "-m", mode, "-w", "stop")

    def kill(self) -> None:
        """Kill all processes of the server, as a machine does that fails."""
        pid = int((self._folder / "data" / "postmaster.pid").read_text().split()[0])
        pids = [pid, *_children(pid)]
        for item in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(item, signal.SIGKILL)
        deadline = time.monotonic() + _SECONDS
        while any(_is_running(item) for item in pids):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        # Each names a process that, if nobody waits for it, seems to be there.
        for path in (self._folder / "data" / "postmaster.pid", *self._folder.glob(".s.*.lock")):
            path.unlink()

    def connect(self) -> Any:
        import psycopg2

        connection = psycopg2.connect(self.dsn)
        connection.autocommit = True
        return connection


def _children(pid: int) -> list[int]:
    path = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(child) for child in path.read_text().split()]


def _is_running(pid: int) -> bool:
    """Return whether a process runs; one that nobody has waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@contextlib.contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    """Start a server; skip the test, with the reason, if that is impossible on this machine."""
    pytest.importorskip("psycopg2")
    if not (BINARIES / "initdb").exists():
        pytest.skip(f"no PostgreSQL {VERSION}: install postgresql-{VERSION}")
    library = _wal2json()
    if library is None:
        pytest.skip(f"no wal2json: install {PACKAGE}")
    # Not in pytest's folder, which is closed to the user that the server runs as.
    folder = Path(tempfile.mkdtemp(prefix="psoup-postgres-"))
    try:
        server = PostgresServer(folder, library)
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _wal2json() -> Path | None:
    """Return the folder of wal2json.so: installed, or out of its package without installing it."""
    installed = BINARIES.parent / "lib"
    if (installed / "wal2json.so").exists():
        return installed
    folder = CACHE / PACKAGE
    library = folder / str(installed).lstrip("/")
    if not (library / "wal2json.so").exists() and shutil.which("apt-get"):
        folder.mkdir(parents=True, exist_ok=True)
        for command in (f"apt-get download {PACKAGE}", f"dpkg -x {PACKAGE}_*.deb ."):
            subprocess.run(
                command, shell=True, cwd=folder, capture_output=True, timeout=_SECONDS, check=False
            )
    if not (library / "wal2json.so").exists():
        return None
    # The server runs as another user, who can't look into the cache of this one.
    public = Path("/tmp") / f"psoup-wal2json-{os.getuid()}"
    public.mkdir(exist_ok=True, mode=0o755)
    shutil.copy(library / "wal2json.so", public / "wal2json.so")
    os.chmod(public / "wal2json.so", 0o755)
    return public
