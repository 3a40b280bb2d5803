"""Pipes and files that grow, published while they are read."""

from __future__ import annotations

import asyncio
import hashlib
import os
import secrets
import signal
import socket
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import click

from client_sdk import PsoupError, Stream
from psoup.cli.connection import Connection
from psoup.cli.inputs import Input
from psoup.cli.output import counted, note
from psoup.cli.problems import TERMINATED, fail
from psoup.source.connectors.pipe import PipeReader
from psoup.source.connectors.tail import TailReader
from psoup.source.errors import SourceError
from psoup.source.feeding.bad_rows import BadRows
from psoup.source.feeding.feed import Feed
from psoup.source.feeding.piece import Mark, Reader
from psoup.source.feeding.report import Report
from psoup.source.readers import Options, file_format

# A run that is cut may be repeated by the SDK for so long; nothing else uses its name.
RUN_LEASE = timedelta(days=1)


def publish_live(
    connection: Connection,
    source: Input,
    stream: Stream,
    options: Options,
    publisher: str | None,
    skip_bad: bool,
) -> None:
    """Publish a pipe to its end, or a followed file until Ctrl-C."""
    if source.is_standard and not options.format:
        fail("standard input needs --format")
    form = file_format(source.path, options)
    name, lease = publisher or f"stdin-{secrets.token_hex(16)}", RUN_LEASE
    if source.is_followed:
        name = publisher or followed_name(source.path, stream)
    descriptor = -1

    def open_reader(mark: Mark) -> Reader:
        nonlocal descriptor
        if source.is_followed:
            return TailReader(source.path.absolute(), form, stream, options, mark)
        # Opening a FIFO would wait for a writer, and not end with Ctrl-C.
        flags = os.O_RDONLY | os.O_NONBLOCK
        descriptor = 0 if source.is_standard else os.open(source.path, flags)
        return PipeReader(descriptor, source.path.name, form, stream, options)

    report = Report(name, note if source.is_followed else _bad_lines_only)
    feed = Feed(
        connection.async_client(),
        stream,
        name,
        open_reader,
        BadRows("skip" if skip_bad else "stop"),
        lease=None if publisher or source.is_followed else lease,
        patience_seconds=None if source.is_followed else connection.timeout,
        report=report,
    )
    label = "standard input" if source.is_standard else source.path.name
    try:
        number = asyncio.run(_run(feed))
    except (PsoupError, SourceError, KeyboardInterrupt):
        note(f"{label} is only partly in {stream.name}: {_count(report)}")
        raise
    finally:
        if descriptor > 0:
            os.close(descriptor)
    note(f"{_count(report)} in {stream.name}{_skipped(report)}")
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    if number == signal.SIGTERM:
        click.get_current_context().exit(TERMINATED)


def followed_name(path: Path, stream: Stream) -> str:
    """Return the publisher's name of a file that is followed on this machine."""
    place = f"{socket.gethostname()}\n{path.absolute()}\n{stream.id}"
    digest = hashlib.blake2b(place.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()
    return f"follow-{digest}"


async def _run(feed: Feed) -> int:
    """Run a feed until its end or a signal; return the signal's number, or 0."""
    numbers = list[int]()

    def stop(number: int) -> None:
        numbers.append(number)
        feed.stopping.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        # Only the main thread handles signals; tests have others.
        with suppress(NotImplementedError, RuntimeError, ValueError):
            loop.add_signal_handler(number, stop, number)
    async with feed.client:
        await feed.run()
    return numbers[0] if numbers else 0


def _bad_lines_only(line: str) -> None:
    if line.startswith("line "):
        note(line)


def _count(report: Report) -> str:
    return counted(report.rows, "row")


def _skipped(report: Report) -> str:
    return f", {counted(report.bad, 'bad line')} skipped" if report.bad else ""
