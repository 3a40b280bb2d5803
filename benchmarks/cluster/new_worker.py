"""Reads the predicates of a stream, as a new worker does, and prints the processor seconds."""

from __future__ import annotations

import json
import sys
import time

from psoup.engine.matching.predicates import predicates_of


def main() -> None:
    root, version, stream = sys.argv[1:]
    started = time.process_time()
    predicates = predicates_of(root)
    predicates.advance(int(version))
    assert not predicates.stem(int(stream)).empty
    print(json.dumps(time.process_time() - started))


if __name__ == "__main__":
    main()
