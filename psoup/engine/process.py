"""The process of an engine: `python -m psoup.engine --store PATH`."""

from __future__ import annotations

import argparse
import logging
import shutil
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from psoup import configuration, lifeline, process_log, umask
from psoup.command_help import HelpFormatter, format_size, parse_size
from psoup.engine.engine import Engine
from psoup.engine.errors import EngineError
from psoup.engine.metrics import EngineMetrics
from psoup.engine.ownership.lock import EngineLock
from psoup.engine.ownership.standby import stand_by
from psoup.engine.settings import EngineSettings, Rest
from psoup.engine.spark.adopted import serve
from psoup.engine.spark.keep_alive import run_empty_job
from psoup.engine.spark.session import make_scratch, open_session
from psoup.monitoring import settings as monitoring
from psoup.monitoring.settings import MonitoringSettings
from psoup.monitoring.thread import ListenerThread
from psoup.reloading import ReloadableOptions, hangup_reloads
from psoup.service_manager import ServiceManager
from psoup.store import Store, StoreError
from psoup.store.delta.durable import MIN_GRACE_SECONDS
from psoup.tracing import open_tracing

log = logging.getLogger(__name__)

_EXAMPLE = """\
examples:
  psoup engine --store ./store --master spark://host:7077
  psoup engine --store ./store --standby
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until SIGTERM or SIGINT (return 0) or a failure (return 1)."""
    reloadable = ReloadableOptions(make_parser, "engine", arguments)
    options = _read(reloadable)
    process_log.start_log(reloadable.log)
    logging.getLogger("py4j").setLevel(logging.WARNING)
    ending = threading.Event()
    manager = ServiceManager.of_environment()
    _listen(ending)
    if hangup_reloads():
        signal.signal(signal.SIGHUP, lambda *_: reloadable.reload())
    else:
        signal.signal(signal.SIGHUP, lambda *_: ending.set())
    if options.end_with_stdin:
        lifeline.end_with_stdin()
    try:
        umask.set_umask(options.umask, options.store)
        _run(options, ending, manager)
    except (EngineError, StoreError, argparse.ArgumentTypeError) as error:
        log.error("the engine ends: %s", error, exc_info=error.__cause__)
        return 1
    return 0


def _listen(ending: threading.Event) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ending.set())


def _read(reloadable: ReloadableOptions) -> argparse.Namespace:
    options = reloadable.values
    options.monitoring = monitoring.read_options(reloadable.parser, options)
    return options


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of an engine's options."""
    defaults = EngineSettings()
    parser = argparse.ArgumentParser(
        "psoup engine",
        description="Run the engine of a store: it matches rows and queries with Spark.",
        epilog=_EXAMPLE,
        formatter_class=HelpFormatter,
    )
    parser.add_argument(
        "--store", type=Path, required=True, metavar="FOLDER", help="the store's folder"
    )
    parser.add_argument("--master", default="local[*]", metavar="URL", help="the Spark master")
    parser.add_argument(
        "--poll-ms",
        type=float,
        default=1000 * defaults.poll,
        metavar="MILLISECONDS",
        help="how often to look for new commits in the log",
    )
    parser.add_argument(
        "--grace",
        type=_grace,
        default=defaults.grace,
        metavar="SECONDS",
        help="how long to keep files after the last epoch that names them; at least "
        f"{MIN_GRACE_SECONDS:g}",
    )
    parser.add_argument(
        "--rest",
        choices=[choice.value for choice in Rest],
        default=defaults.rest.value,
        help="when to match rows outside of all windows. never: don't, and drop the matches that "
        "all windows have passed. idle: while their stream is idle, and drop no matches",
    )
    parser.add_argument(
        "--standby",
        action="store_true",
        help="if the store has an engine, wait until it ends or stands still, then take over",
    )
    _add_sizes(parser, defaults)
    parser.add_argument(
        "--ui", action="store_true", help="serve Spark's web page, on its usual port"
    )
    parser.add_argument(lifeline.OPTION, action="store_true", help=lifeline.HELP)
    parser.add_argument(umask.OPTION, type=umask.parse_umask, metavar="OCTAL", help=umask.HELP)
    configuration.add_option(parser)
    process_log.add_options(parser)
    monitoring.add_options(parser)
    return parser


def _add_sizes(parser: argparse.ArgumentParser, defaults: EngineSettings) -> None:
    """Add the options that say how much work a job of Spark has."""
    parser.add_argument(
        "--step-bytes",
        type=_positive(parse_size),
        metavar="SIZE",
        help="how much of the log one step takes at most (default: 8 times --task-bytes for each "
        "core of the cluster)",
    )
    parser.add_argument(
        "--step-commits",
        type=_positive(int),
        metavar="COUNT",
        help="how many commits of the log one step takes at most (default: 128 for each core of "
        "the cluster)",
    )
    parser.add_argument(
        "--step-seconds",
        type=_positive(float),
        default=defaults.step_seconds,
        metavar="SECONDS",
        help="take less of the log if a step would take longer than this, by the processor time of "
        "earlier ones",
    )
    parser.add_argument(
        "--task-bytes",
        type=_positive(parse_size),
        default=format_size(defaults.task_bytes),
        metavar="SIZE",
        help="how much of the log is worth a task of its own",
    )
    parser.add_argument(
        "--slice-seconds",
        type=_positive(float),
        default=defaults.slice_seconds,
        metavar="SECONDS",
        help="how long new rows may wait while older rows are matched with new queries",
    )


Number = TypeVar("Number", int, float)


def _positive(parse: Callable[[str], Number]) -> Callable[[str], Number]:
    """Return a parser of numbers that refuses those that are not positive."""

    def parse_positive(text: str) -> Number:
        number = parse(text)
        if not number > 0:
            raise argparse.ArgumentTypeError(f"{text} is not positive")
        return number

    return parse_positive


def _grace(text: str) -> float:
    grace = float(text)
    if not grace >= MIN_GRACE_SECONDS:
        raise argparse.ArgumentTypeError(
            f"at least {MIN_GRACE_SECONDS:g} seconds: younger files may be about to be committed"
        )
    return grace


@contextmanager
def _metrics(settings: MonitoringSettings | None, store_id: str) -> Iterator[EngineMetrics]:
    """Yield what the engine reports to, and let it be read over HTTP if that is asked for."""
    if settings is None:
        yield EngineMetrics()
        return
    # Imported here, since an engine without it runs without prometheus_client.
    from psoup.engine.metrics.recording import open_metrics

    try:
        metrics, listener = open_metrics(settings, store_id)
    except OSError as error:
        raise EngineError(str(error)) from error
    thread = ListenerThread(listener)
    thread.start()
    print(listener.ready_line, flush=True)
    try:
        yield metrics
    finally:
        thread.stop()


def _run(options: argparse.Namespace, ending: threading.Event, manager: ServiceManager) -> None:
    settings = replace(
        EngineSettings(),
        poll=options.poll_ms / 1000,
        grace=options.grace,
        rest=Rest(options.rest),
        step_bytes=options.step_bytes,
        step_commits=options.step_commits,
        step_seconds=options.step_seconds,
        task_bytes=options.task_bytes,
        slice_seconds=options.slice_seconds,
    )
    try:
        tracing = open_tracing("engine")
    except ValueError as error:
        raise EngineError(str(error)) from None
    store = Store.open(options.store, create=True)
    process_log.name_store(store.id)
    lock = EngineLock(store.root)
    if not options.standby:
        # Before Spark, which takes seconds to start, so that a second engine fails at once.
        lock.acquire()
    if ending.is_set():
        return
    scratch = make_scratch(store.id)
    try:
        log.info("starting Spark on %s", options.master)
        spark = open_session(scratch, master=options.master, ui=options.ui)
        _listen(ending)  # Spark's session has replaced the handler of SIGINT
        try:
            if options.standby:
                # So that Spark has loaded what the first step needs.
                run_empty_job(spark)
                print("engine stands by", flush=True)
                manager.ready()
                free_store = stand_by(store.root, lock, ending, manager.beat)
                if free_store is None:
                    return
                store = free_store
            with _metrics(options.monitoring, store.id) as metrics:
                serve(Engine(store, spark, settings, lock, metrics, tracing), ending, manager)
        finally:
            spark.stop()
    finally:
        if tracing is not None:
            tracing.close()
        shutil.rmtree(scratch, ignore_errors=True)
