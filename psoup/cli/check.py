"""psoup check: look whether a store's tables say what follows from its rows and its log."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console

from psoup.cli.output import counted, echo, note
from psoup.cli.priority import yield_to_servers
from psoup.cli.problems import fail, refuse
from psoup.cli.serve import require
from psoup.umask import set_umask

if TYPE_CHECKING:
    from psoup.store.block_checking import CheckBlocks


@click.command()
@click.argument("store", type=click.Path(path_type=Path))
@click.option(
    "--sample",
    default="1%",
    metavar="PERCENT",
    help="How much of the stored matches to evaluate again; at least one block of each stream.",
)
@click.option("--all", "everything", is_flag=True, help="Evaluate all stored matches again.")
@click.option("--spark", is_flag=True, help="Evaluate matches by Spark: for a large store.")
@click.option(
    "--master",
    default="local[*]",
    metavar="URL",
    help="Spark's master, with --spark. On a cluster, every machine needs the store's folder.",
)
def check(store: Path, sample: str, everything: bool, spark: bool, master: str) -> None:
    """Check the store in this folder, also while servers and the engine run.

    Reads every file, as `psoup repair` does. Compares coverage, matches and closures with the rows,
    and the newest epoch with the log. Lists what is wrong, and ends with exit code 1 then: `psoup
    rebuild` derives matches, coverage and closures again. Writes nothing but a pin.

    \b
    psoup check ./store
    psoup check ./store --sample 20%
    psoup check ./store --all
    psoup check ./store --all --spark
    """
    yield_to_servers()
    require("engine" if spark else "server")
    from psoup.store import Store, StoreError
    from psoup.store.block_checking import check_here
    from psoup.store.checking import check as check_store

    share = 1.0 if everything else _share(sample)
    set_umask(store=store)
    try:
        opened = Store.open(store)
        with (
            _blocks(opened.id, master) if spark else nullcontext(check_here) as check_blocks,
            Console(stderr=True).status("checking") as status,
        ):
            report = check_store(
                opened,
                share,
                progress=lambda stage: status.update(f"checking: {stage}"),
                check_blocks=check_blocks,
            )
    except (StoreError, OSError) as error:
        refuse(f"{error}\n  Restore the damaged file from a back-up, under its name.")
    for problem in report.problems:
        echo(problem)
    note(
        f"{counted(report.rows, 'row')}, {counted(report.predicates, 'predicate')}; matches of "
        f"{report.checked_blocks} of {counted(report.blocks, 'block')} evaluated again",
        f"{report.uncovered:,} of rows × predicates are not matched ahead: no window reaches them, "
        "or the engine has not come to them yet",
    )
    if report.problems:
        refuse(f"{counted(len(report.problems), 'problem')}")
    note("no problem")


@contextmanager
def _blocks(store_id: str, master: str) -> Iterator[CheckBlocks]:
    """Open a session of Spark, and return the function that checks blocks in its tasks."""
    from psoup.engine.repair.block_checking import check_with
    from psoup.engine.spark.session import make_scratch, open_session
    from psoup.store.delta.durable import remove_folder

    scratch = make_scratch(store_id)
    spark = open_session(scratch, master=master)
    try:
        yield check_with(spark)
    finally:
        spark.stop()
        remove_folder(scratch)


def _share(text: str) -> float:
    try:
        share = float(text.removesuffix("%")) / 100
    except ValueError:
        share = -1.0
    if not 0 < share <= 1:
        fail(f"--sample {text!r}: write a percentage such as 1%, up to 100%")
    return share
