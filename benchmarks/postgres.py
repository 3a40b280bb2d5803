"""PostgreSQL beside us, if it is installed: a cluster of its own, tables with indexes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import pyarrow as pa
import pyarrow.csv

from benchmarks.memory import family, thread_seconds

_TYPES = {
    pa.int64(): "bigint",
    pa.float64(): "double precision",
    pa.string(): "text",
    pa.timestamp("us", "UTC"): "timestamptz",
}
_PROGRAMS = ("initdb", "pg_ctl", "psql")
# The account that runs it if this process is root, which PostgreSQL refuses.
_ACCOUNT = "postgres"


def installed() -> bool:
    return all(_program(name) for name in _PROGRAMS)


def _program(name: str) -> str | None:
    places = [str(place) for place in sorted(Path("/usr/lib/postgresql").glob("*/bin"))]
    return shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), *places]))


class Postgres:
    """A cluster in a folder of its own, which holds tables and answers over a socket there; with a
    `port` also over the loopback."""

    def __init__(
        self,
        folder: Path,
        tables: Mapping[str, pa.Table],
        indexes: Sequence[str],
        port: int | None = None,
    ) -> None:
        self._folder = folder
        self._port = port
        self._tables = tables
        self._indexes = indexes

    def __enter__(self) -> Self:
        self._folder.mkdir()
        if os.getuid() == 0:
            shutil.chown(self._folder, _ACCOUNT)
            # The account must be able to reach the folder.
            for parent in self._folder.parents:
                if parent.stat().st_uid == 0 and parent != Path("/"):
                    parent.chmod(parent.stat().st_mode | 0o111)
        self._run("initdb", "-D", str(self._data), "-A", "trust", "-N", "-U", _ACCOUNT)
        address = "" if self._port is None else f"127.0.0.1 -p {self._port}"
        options = (
            f"-k {self._folder} -c listen_addresses={address} -c fsync=off -c shared_buffers=1GB"
        )
        self._run(
            "pg_ctl", "-D", str(self._data), "-w", "-o", options, "-l", f"{self._data}.log", "start"
        )
        try:
            self._fill()
        except BaseException:
            # Without this nothing would end the server: `__exit__` is not called.
            self._stop()
            raise
        return self

    def _fill(self) -> None:
        for name, rows in self._tables.items():
            columns = ", ".join(f"{field.name} {_TYPES[field.type]}" for field in rows.schema)
            path = self._folder / f"{name}.csv"
            pyarrow.csv.write_csv(rows, path)
            self._sql(f"CREATE TABLE {name} ({columns})")
            self._sql(f"\\copy {name} FROM '{path}' CSV HEADER")
            path.unlink()
        for index in self._indexes:
            self._sql(f"CREATE INDEX ON {index}")
        self._sql("ANALYZE")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop()

    def _stop(self) -> None:
        self._run("pg_ctl", "-D", str(self._data), "-m", "immediate", "stop")
        shutil.rmtree(self._folder)

    def least_seconds(self, sql: str, rounds: int) -> float:
        """The least seconds that a query took in the server, planning included."""
        # One session, so that its caches are warm after the first round.
        text = f"EXPLAIN (ANALYZE, TIMING OFF) {sql};\n" * rounds
        output = self._sql(text)
        times = {
            kind: [float(ms) for ms in re.findall(rf"{kind} Time: ([0-9.]+) ms", output)]
            for kind in ("Planning", "Execution")
        }
        return min(map(sum, zip(*times.values(), strict=True))) / 1e3

    @property
    def target(self) -> str:
        """The connection string for clients over the loopback."""
        return f"host=127.0.0.1 port={self._port} user={_ACCOUNT} dbname=postgres sslmode=disable"

    def processor(self) -> dict[int, float]:
        """Return the seconds of processor time that the processes of the cluster have used."""
        pid = int((self._data / "postmaster.pid").read_text().split()[0])
        return thread_seconds(family(pid))

    @property
    def _data(self) -> Path:
        return self._folder / "data"

    def _sql(self, text: str) -> str:
        port = () if self._port is None else ("-p", str(self._port))
        options = ("-h", str(self._folder), *port, "-U", _ACCOUNT, "-d", "postgres", "-X", "-q")
        return self._run("psql", *options, "-v", "ON_ERROR_STOP=1", text=text)

    def _run(self, name: str, *arguments: str, text: str = "") -> str:
        program = _program(name)
        assert program is not None, name
        account = ["runuser", "-u", _ACCOUNT, "--"] if os.getuid() == 0 else []
        done = subprocess.run(
            [*account, program, *arguments],
            input=text,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{name}: {done.stderr}")
        return done.stdout
