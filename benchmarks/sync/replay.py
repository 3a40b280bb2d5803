"""Real rows, replayed: a client syncs, stays away for days, and comes back.

The rows are not part of the project. They are looked for in `shared/data` beside it, or where
PSOUP_DATA says; without them this part is left out.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

FOLDER = Path(os.environ.get("PSOUP_DATA") or Path(__file__).parents[3] / "shared" / "data")
DAY = timedelta(days=1)
INSTANT = pa.timestamp("us", tz="UTC")


def available() -> bool:
    return (FOLDER / "ticks").is_dir() and (FOLDER / "parking").is_dir()


@dataclass(frozen=True)
class Replay:
    """Rows by ascending `ts`; the client syncs first when `first` is reached."""

    rows: pa.Table
    first: datetime

    def until(self, instant: datetime) -> int:
        """How many rows have a ts up to the instant."""
        ts = self.rows["ts"].cast(pa.int64()).to_numpy()
        micros = pa.scalar(instant, INSTANT).cast(pa.int64()).as_py()
        return int(np.searchsorted(ts, micros, "right"))


def ticks(days: int, every: int) -> Replay:
    """Return the one trading day, once for each day, with every n-th of its rows.

    Each day lacks a tenth of the rows, another tenth each, and has prices of its own level.
    """
    options = pa.csv.ConvertOptions(
        include_columns=["ts", "symbol", "price", "size"],
        column_types={"ts": pa.timestamp("ms"), "symbol": pa.string()},
    )
    day = pa.csv.read_csv(FOLDER / "ticks" / "trades.csv.gz", convert_options=options)
    day = day.take(pa.array(np.arange(0, day.num_rows, every)))
    copies = [_another(day, number) for number in range(days)]
    return Replay(pa.concat_tables(copies), copies[0]["ts"][-1].as_py())


def _another(day: pa.Table, number: int) -> pa.Table:
    random = np.random.default_rng(number)
    rows = day.filter(pa.array(random.random(day.num_rows) > 0.1))
    ts = rows["ts"].cast(pa.timestamp("us")).cast(pa.int64()).to_numpy()
    price = np.round(rows["price"].to_numpy() * (1 + 0.004 * number), 2)
    rows = rows.set_column(rows.schema.get_field_index("price"), "price", pa.array(price))
    return _with_ts(rows, ts + number * (DAY // timedelta(microseconds=1)))


def parking(every: int) -> Replay:
    """A week; the first sync is a quarter of an hour into it."""
    rows = pa.csv.read_csv(FOLDER / "parking" / "changes_week.csv.gz")
    ts = rows["ts"].cast(INSTANT).cast(pa.int64()).to_numpy()
    rows = _with_ts(rows, ts)
    rows = rows.take(pc.sort_indices(rows, [("ts", "ascending")]))
    rows = rows.take(pa.array(np.arange(0, rows.num_rows, every)))
    return Replay(rows, rows["ts"][0].as_py() + timedelta(minutes=15))


def _with_ts(rows: pa.Table, micros: np.ndarray) -> pa.Table:
    column = pa.array(micros).view(INSTANT)
    return rows.set_column(rows.schema.get_field_index("ts"), "ts", column)
