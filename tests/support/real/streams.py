"""The streams that real rows become, read from the files of `../shared/data`.

Tables that something is joined with have no time in their files, and never change. Here they are
keyed streams, so two things are derived: an instant, and a few changes (see `sensors`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from datastem.arrays import Int64s, Mask
from datastem.schema import OP

_MOMENT = pa.timestamp("us", "UTC")
_PER_ROAD, _MOVED, _REMOVED = 20, 7, 50


@dataclass(frozen=True)
class RealStream:
    """A stream's definition, and its rows in the order they are published in.

    `ts` names the column of event time, None for arrival time; `key` that of the key, if there is
    one. Rows of a keyed stream may be deletes, marked by `_op`.
    """

    name: str
    definition: str
    rows: pa.Table
    ts: str | None = None
    key: str | None = None

    @property
    def last(self) -> datetime:
        """The greatest instant of the rows, which NOW has reached."""
        newest: datetime = pc.max(self.rows[self.ts]).as_py()
        return newest

    def until(self, instant: datetime) -> RealStream:
        """Return the stream without what is dated past an instant."""
        if self.ts is None:
            return self
        mask = pc.less_equal(self.rows[self.ts], pa.scalar(instant, _MOMENT))
        return replace(self, rows=self.rows.filter(mask))

    def after(self, instant: datetime) -> RealStream:
        """Return the stream with nothing but what is dated past an instant."""
        return replace(self, rows=self.rows.slice(self.until(instant).rows.num_rows))


def traffic(data: Path) -> RealStream:
    """Return the readings of one day, 59,616 rows."""
    rows = timed(csv.read_csv(data / "traffic" / "speeds_3days.csv.gz"), "ts")
    return RealStream(
        "traffic",
        "CREATE STREAM traffic (ts TIMESTAMP, station BIGINT, speed_mph DOUBLE) ORDERED BY ts",
        rows.filter(pc.less(rows["ts"], pa.scalar(datetime(2012, 3, 2, tzinfo=UTC), _MOMENT))),
        "ts",
    )


def sensors(data: Path) -> RealStream:
    """Return the 207 stations with their coordinates, known from midnight on.

    Derived, since the file has none of it: a road for each twenty neighbours in the file; every
    seventh station is moved to the next road at eight; every fiftieth is removed at 18:00.
    """
    read = csv.read_csv(data / "traffic" / "sensors.csv").rename_columns(
        ["number", "station", "latitude", "longitude"]
    )
    numbers = read["number"].to_numpy()
    roads = numbers // _PER_ROAD
    parts = [
        _changed(read, numbers >= 0, roads, 0, "row"),
        _changed(read, numbers % _MOVED == 0, roads + 1, 8, "row"),
        _changed(read, numbers % _REMOVED == 0, roads, 18, "delete"),
    ]
    return RealStream(
        "sensors",
        "CREATE STREAM sensors (station BIGINT, latitude DOUBLE, longitude DOUBLE, road BIGINT, "
        "seen TIMESTAMP) KEY (station) ORDERED BY seen",
        pa.concat_tables(parts),
        "seen",
        "station",
    )


def _changed(read: pa.Table, chosen: Mask, roads: Int64s, hour: int, op: str) -> pa.Table:
    """Return the chosen stations, as they are from an hour of the day on."""
    count = int(chosen.sum())
    instants = pa.array([datetime(2012, 3, 1, hour, tzinfo=UTC)] * count, _MOMENT)
    stations = read.filter(pa.array(chosen)).drop_columns("number")
    stations = stations.append_column("road", pa.array(roads[chosen])).append_column(
        "seen", instants
    )
    return stations.append_column(OP, pa.array([op] * count))


def trades(data: Path) -> RealStream:
    """Return a day of two shares, 50,644 rows; many have one ts."""
    rows = timed(csv.read_csv(data / "ticks" / "trades.csv.gz"), "ts")
    rows = rows.select(["ts", "symbol", "price", "size", "exchange"])
    return RealStream(
        "trades",
        "CREATE STREAM trades (ts TIMESTAMP, symbol TEXT, price DOUBLE, size BIGINT, "
        "exchange TEXT) ORDERED BY ts",
        rows.filter(pc.is_in(rows["symbol"], pa.array(["IBM", "AIG"]))),
        "ts",
    )


def parking(data: Path) -> RealStream:
    """Return the changes of a day, 57,030 rows: how many places are free, for each car park."""
    rows = timed(csv.read_csv(data / "parking" / "changes_week.csv.gz"), "ts")
    return RealStream(
        "parking",
        "CREATE STREAM parking (ts TIMESTAMP, place_id TEXT, free_places BIGINT) "
        "KEY (place_id) ORDERED BY ts",
        rows.filter(pc.less(rows["ts"], pa.scalar(datetime(2020, 7, 7, tzinfo=UTC), _MOMENT))),
        "ts",
        "place_id",
    )


def changes(data: Path) -> RealStream:
    """Return the rows of `parking`, of which each stays a row."""
    return RealStream(
        "changes",
        "CREATE STREAM changes (ts TIMESTAMP, place_id TEXT, free_places BIGINT) ORDERED BY ts",
        parking(data).rows,
        "ts",
    )


def lots(data: Path) -> RealStream:
    """Return the 739 car parks; a third of them have no size. They have arrival time, because the
    file has none."""
    options = csv.ParseOptions(newlines_in_values=True)
    read = csv.read_csv(data / "parking" / "lots.csv", parse_options=options)
    return RealStream(
        "lots",
        "CREATE STREAM lots (place_id TEXT, place_name TEXT, city_name TEXT, num_all BIGINT) "
        "KEY (place_id)",
        read.select(["place_id", "place_name", "city_name", "num_all"]),
        key="place_id",
    )


def timed(rows: pa.Table, name: str) -> pa.Table:
    """Return the rows with a column of instants as it is published."""
    moments = rows[name]
    if moments.type.tz is None:
        moments = pc.assume_timezone(moments, "UTC")
    return rows.set_column(rows.schema.get_field_index(name), name, moments.cast(_MOMENT))
