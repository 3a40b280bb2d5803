"""A log, and a hand-made engine that checkpoints it and drops commits: all in one process.

`python -m tests.power.by_hand STORE JOURNAL` is run to be recorded. It marks the versions of the
log that were acknowledged.
"""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path

from psoup.store import Store
from psoup.store.layout import ENGINE_TABLES
from tests.power.recorder import Journal
from tests.support.engine.author import READINGS, Author, above, readings
from tests.support.server.epochs import HandMadeEngine

STEPS = 6
BATCHES = 3


def main(root: Path, journal: Path) -> None:
    store = Store.open(root, create=True)
    author, engine = Author(store), HandMadeEngine(store)
    stream = author.create(READINGS)
    with closing(Journal(root, journal)) as notes:
        for step in range(STEPS):
            author.register(stream, above(float(step)))
            for number in range(BATCHES):
                position = author.publish(stream, readings([number], [1.0]), "me")
                notes.mark(position.version)
            engine.step()
            for name in (*ENGINE_TABLES, "epochs", "log", f"stems/{stream}"):
                if store.table(name).latest_version():
                    store.table(name).checkpoint()
                    store.table(name).drop_commits(store.table(name).floor())


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
