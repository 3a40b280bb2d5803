"""Problems as the terminal shows them: the message, the place, what to do; exit codes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import click

from client_sdk import ConnectionFailed, PsoupError
from psoup.cli.output import SentenceGroup, echo
from psoup.source.errors import AnotherCopy, BadInput, BadSettings, SourceAway, SourceError

REFUSED = 1
USAGE = 2
NO_STORE = 3
BUSY = 4
HOOK_FAILED = 5
# What sysexits.h calls EX_TEMPFAIL: the same command may well succeed later.
TRY_LATER = 75
INTERRUPTED = 130
TERMINATED = 143


class Problem(click.ClickException):
    """A mistake in the command, found without the store."""

    exit_code = USAGE

    def show(self, file: Any = None) -> None:
        complain(self.format_message())


class Refusal(Problem):
    """A correct command that the store, or its content, does not allow."""

    exit_code = REFUSED


class ProblemGroup(SentenceGroup):
    """A group that shows every error of the SDK as a message and an exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        with reported_problems(ctx):
            return super().invoke(ctx)


@contextmanager
def reported_problems(ctx: click.Context) -> Iterator[None]:
    """Show an error of the SDK, or Ctrl-C, and end the command with its exit code."""
    try:
        yield
    except PsoupError as error:
        show(error)
        ctx.exit(exit_code(error))
    except (SourceError, SourceAway) as error:
        complain(str(error))
        ctx.exit(source_code(error))
    except KeyboardInterrupt:
        complain("ended with Ctrl-C")
        ctx.exit(INTERRUPTED)


def exit_code(error: PsoupError) -> int:
    """Return the exit code of an error of the SDK.

    A server that answers with a reason has refused, even if it says that it is unavailable.
    """
    return NO_STORE if isinstance(error, ConnectionFailed) and not error.reason else REFUSED


def source_code(error: Exception) -> int:
    """Return the exit code of an error of a source, or of the SDK."""
    if isinstance(error, PsoupError):
        return exit_code(error)
    if isinstance(error, SourceAway):
        return TRY_LATER
    if isinstance(error, BadInput | BadSettings):
        return USAGE
    return BUSY if isinstance(error, AnotherCopy) else REFUSED


def show(error: PsoupError) -> None:
    """Print an error of the SDK with its place, and what to do about it."""
    detail = error.detail
    complain(error.message)
    if detail.excerpt and detail.excerpt.splitlines()[0].strip() not in error.message:
        echo(_indented(detail.excerpt), err=True)
    if detail.expected and detail.expected not in error.message:
        echo(f"  expected: {detail.expected}", err=True)
    if detail.got and detail.got not in error.message:
        echo(f"  got:      {detail.got}", err=True)
    if detail.hint and detail.hint not in error.message:
        echo(f"  {detail.hint}", err=True)
    if isinstance(error, ConnectionFailed) and not error.reason:
        echo("  Start one with `psoup serve ./store`, or give --target HOST:PORT.", err=True)
        echo(
            "  A server with TLS needs --tls-ca FILE or --tls; one without TLS needs neither.\n"
            "  Its certificate must be of a trusted authority, and for the name in --target.",
            err=True,
        )


def complain(message: str) -> None:
    """Print an error message."""
    echo(message, err=True, label=f"{click.style('psoup:', fg='red', bold=True)} ")


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())


def fail(message: str) -> NoReturn:
    """End the command as wrong usage."""
    raise Problem(message)


def refuse(message: str) -> NoReturn:
    """End the command as refused."""
    raise Refusal(message)
