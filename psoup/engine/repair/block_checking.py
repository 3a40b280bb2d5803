"""The check of stored matches by Spark: each task evaluates conditions over some blocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from pyspark.sql import SparkSession

from psoup.store.block_checking import BlockCheck, CheckBlocks, StreamCheck, block_problems

# Tasks for each core: blocks take different times, and a free core takes the next task.
_TASKS_PER_CORE = 4


def check_with(spark: SparkSession) -> CheckBlocks:
    """Return the function that checks blocks in tasks of a session."""

    def check_blocks(stream: StreamCheck, blocks: Sequence[BlockCheck]) -> Iterable[str]:
        context = spark.sparkContext
        # The predicates of a stream may be many, so each executor gets them once.
        shared = context.broadcast(stream)

        def task(part: Iterable[BlockCheck]) -> Iterator[str]:
            for block in part:
                yield from block_problems(shared.value, block)

        tasks = min(len(blocks), _TASKS_PER_CORE * context.defaultParallelism)
        try:
            problems: list[str] = context.parallelize(blocks, tasks).mapPartitions(task).collect()
        finally:
            shared.destroy()
        return problems

    return check_blocks
