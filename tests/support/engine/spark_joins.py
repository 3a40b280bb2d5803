"""`python -m tests.support.engine.spark_joins`: an engine to which every join is a large one."""

from __future__ import annotations

from dataclasses import replace

from psoup.engine import process
from psoup.engine.settings import EngineSettings


def settings() -> EngineSettings:
    return replace(EngineSettings(), spark_join_factor=0, spark_slice_rows=4096)


if __name__ == "__main__":
    setattr(process, "EngineSettings", settings)  # noqa: B010
    raise SystemExit(process.main())
