"""The options of a server process, and the settings that they say."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from datastem.accept import Limits
from psoup import configuration, lifeline, process_log, umask
from psoup.command_help import HelpFormatter, format_size, parse_size
from psoup.monitoring import settings as monitoring
from psoup.monitoring.settings import MonitoringSettings
from psoup.server.group import membership
from psoup.server.identity.settings import add_options, read_options
from psoup.server.settings import Settings

_EXAMPLE = """\
example:
  psoup server --store ./store --port 7182
  psoup server --store ./store --host 0.0.0.0 --port 7181 --auth keys \\
      --tls-cert server.pem --tls-key server.key
"""


def parse_arguments(arguments: Sequence[str] | None = None) -> Settings:
    parser = make_parser()
    return read_settings(parser, configuration.parse_configured(parser, "server", arguments))


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of a server's options, to which other doors may add theirs."""
    defaults = Settings(Path())
    parser = argparse.ArgumentParser(
        prog="psoup server",
        description="Run one server of a store: it takes rows and queries, and answers.",
        epilog=_EXAMPLE,
        formatter_class=HelpFormatter,
    )
    parser.add_argument(
        "--store",
        type=Path,
        required=True,
        metavar="FOLDER",
        help="the store's folder; a new store is made in one that is missing or empty",
    )
    parser.add_argument(
        "--host",
        default=defaults.host,
        help="the address to listen on; any but this machine's needs TLS and --auth",
    )
    parser.add_argument(
        "--port",
        type=int,
        default=defaults.port,
        help="the port to listen on; 0 chooses a free one",
    )
    parser.add_argument(
        "--servers",
        type=_positive,
        default=defaults.servers,
        metavar="COUNT",
        help="servers on this port, each a process, which share all limits and quotas",
    )
    parser.add_argument(membership.OPTION, type=membership.parse_membership, help=argparse.SUPPRESS)
    parser.add_argument(
        "--memory",
        type=parse_size,
        default=format_size(defaults.memory),
        metavar="SIZE",
        help="memory for rows, matches and running requests together",
    )
    parser.add_argument(
        "--durability",
        choices=["fsync", "none"],
        default=defaults.durability,
        help="fsync: what is acknowledged survives a power cut; none: it may be lost",
    )
    parser.add_argument(
        "--token-key-file",
        type=Path,
        metavar="FILE",
        help="the secret that signs sync tokens; without it, the one in the store's folder",
    )
    parser.add_argument(
        "--wait",
        type=float,
        default=defaults.wait,
        metavar="SECONDS",
        help="how long an invoke or a sync may wait for a position or the engine",
    )
    parser.add_argument(lifeline.OPTION, action="store_true", help=lifeline.HELP)
    parser.add_argument(umask.OPTION, type=umask.parse_umask, metavar="OCTAL", help=umask.HELP)
    parser.add_argument(
        "--clock-limit",
        type=float,
        default=defaults.clock_limit,
        metavar="SECONDS",
        help="how far this machine's clock may be ahead of the other servers'",
    )
    parser.add_argument(
        "--clock-settle",
        type=float,
        default=defaults.clock_settle,
        metavar="SECONDS",
        help="confirm a jump of the clock after stamps this much later; 0 trusts it at once",
    )
    limits = parser.add_argument_group("limits")
    limits.add_argument(
        "--compute-rows",
        type=int,
        default=defaults.compute_rows,
        metavar="ROWS",
        help="the most rows that one answer may evaluate without the engine",
    )
    limits.add_argument(
        "--join-pairs",
        type=int,
        default=defaults.join_pairs,
        metavar="PAIRS",
        help="the most pairs of rows that the joins of one answer may look at",
    )
    limits.add_argument(
        "--message",
        type=parse_size,
        default=format_size(defaults.message_bytes),
        metavar="SIZE",
        help="the largest message that a client may send",
    )
    limits.add_argument(
        "--batch",
        type=parse_size,
        metavar="SIZE",
        help="the largest decoded batch of rows; at most, and by default, an eighth of --memory",
    )
    limits.add_argument(
        "--batch-rows",
        type=int,
        default=defaults.batch.rows,
        metavar="ROWS",
        help="the most rows of a batch",
    )
    limits.add_argument(
        "--value",
        type=parse_size,
        default=format_size(defaults.batch.value_bytes),
        metavar="SIZE",
        help="the longest TEXT in a row",
    )
    limits.add_argument(
        "--query",
        type=parse_size,
        default=format_size(defaults.query_bytes),
        metavar="SIZE",
        help="the longest SQL text",
    )
    limits.add_argument(
        "--columns",
        type=int,
        default=defaults.columns,
        metavar="COUNT",
        help="the most columns of a stream",
    )
    limits.add_argument(
        "--calls",
        type=int,
        default=defaults.calls,
        metavar="COUNT",
        help="the most calls at the same time",
    )
    limits.add_argument(
        "--watches",
        type=int,
        default=defaults.watches,
        metavar="COUNT",
        help="the most watches at the same time; they are not counted as calls",
    )
    limits.add_argument(
        "--backlog",
        type=parse_size,
        default=format_size(defaults.log_bytes),
        metavar="SIZE",
        help="refuse rows while the engine has more than this of the log to consume",
    )
    parser.add_argument(
        "--drain-delay",
        type=float,
        default=defaults.drain_delay,
        metavar="SECONDS",
        help="how long to take calls after a signal to stop, while load balancers notice",
    )
    configuration.add_option(parser)
    add_options(parser)
    process_log.add_call_option(process_log.add_options(parser))
    monitoring.add_options(parser)
    return parser


def read_settings(parser: argparse.ArgumentParser, options: argparse.Namespace) -> Settings:
    """Return the settings that options say. End the process if they contradict each other."""
    group = options.group
    # Each server of a group has an equal part of what the machine gives all of them.
    parts = 1 if group is None else group.members
    return Settings(
        store=options.store,
        host=options.host,
        port=options.port,
        end_with_stdin=options.end_with_stdin,
        umask=options.umask,
        durability=options.durability,
        memory=options.memory // parts,
        token_key_file=options.token_key_file,
        wait=options.wait,
        clock_limit=options.clock_limit,
        clock_settle=options.clock_settle,
        batch=Limits(options.batch_rows, options.value, _batch_bytes(parser, options, parts)),
        message_bytes=options.message,
        query_bytes=options.query,
        columns=options.columns,
        compute_rows=options.compute_rows,
        join_pairs=options.join_pairs,
        calls=max(1, options.calls // parts),
        watches=max(1, options.watches // parts),
        log_bytes=options.backlog,
        identity=read_options(parser, options),
        servers=options.servers,
        group=group,
        log=process_log.read_options(options),
        monitoring=_monitoring(parser, options),
        drain_delay=max(0.0, options.drain_delay),
    )


def _monitoring(
    parser: argparse.ArgumentParser, options: argparse.Namespace
) -> MonitoringSettings | None:
    """Return the settings of the port for metrics: each server of a group has one of its own."""
    settings, group = monitoring.read_options(parser, options), options.group
    if settings is None or group is None or not settings.port:
        return settings
    return replace(settings, port=settings.port + group.member)


def _positive(text: str) -> int:
    """Return a number of at least 1. Raise ArgumentTypeError."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 1")
    return int(text)


def _batch_bytes(parser: argparse.ArgumentParser, options: argparse.Namespace, parts: int) -> int:
    """Return the most bytes of a batch. It is in memory four times while it is accepted, and half
    of the memory of a server is for requests."""
    parts = max(parts, options.servers)
    most: int = options.memory // parts // 8
    if options.batch is not None and options.batch > most:
        parser.error(f"--batch {options.batch} needs --memory {8 * parts * options.batch} or more")
    return most if options.batch is None else int(options.batch)
