"""An answer over a store's folder, without a server: `python examples/answer_without_server.py
STORE 'SELECT …'`.

Nothing is written, and a server or an engine may run over the same folder at the same time.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pyarrow as pa

from datastem.memory import Memory
from psoup.answers import AnswerMaker, Question, Replica, View
from psoup.store import Store


def answer(folder: Path, sql: str, clock: int | None = None) -> pa.Table:
    """The rows of a query over all batches accepted so far; `clock` is in microseconds, UTC."""
    store = Store.open(folder)
    replica = Replica.open(store, Memory(256 << 20))
    view = View.at(replica, time.time_ns() // 1000 if clock is None else clock)
    question = Question.of_text(sql, view.state)
    return AnswerMaker(store).answer(view, question).table


if __name__ == "__main__":
    for row in answer(Path(sys.argv[1]), sys.argv[2]).to_pylist():
        print(row)
