"""The options of a running process, read again on SIGHUP.

The table `[log]` takes effect at once. A process also reads the files again that its options name,
such as certificates. Other settings that have changed are reported: they need a restart.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable, Sequence

from psoup import configuration, process_log
from psoup.configuration import BadConfiguration
from psoup.process_log import LogSettings

log = logging.getLogger(__name__)

_AT_ONCE = "log"


class ReloadableOptions:
    """The options that a process was started with, from the command line, the environment and a
    file. `values` are those in effect; the process ends if they can't be used."""

    def __init__(
        self,
        make_parser: Callable[[], argparse.ArgumentParser],
        process: str,
        arguments: Sequence[str] | None,
    ) -> None:
        self._make_parser = make_parser
        self._process = process
        self._arguments = arguments
        self.parser = make_parser()
        self.values = configuration.parse_configured(self.parser, process, arguments)

    @property
    def log(self) -> LogSettings:
        return process_log.read_options(self.values)

    def reload(self) -> None:
        """Read the options again, and apply those of the log. Bad ones change nothing."""
        parser = self._make_parser()
        try:
            values = self._read(parser)
        except BadConfiguration as error:
            log.error("the configuration stays as it was: %s", error)
            return
        for key, table, action in configuration.keys_of(parser):
            old, new = getattr(self.values, action.dest), getattr(values, action.dest)
            if old == new:
                continue
            if table == _AT_ONCE:
                setattr(self.values, action.dest, new)
            else:
                log.warning("%s has changed, and needs a restart", key)
        process_log.start_log(self.log)
        log.info("the configuration was read again")

    def _read(self, parser: argparse.ArgumentParser) -> argparse.Namespace:
        """Return the options as they are now. Raise BadConfiguration."""

        def refuse(message: str) -> None:
            raise BadConfiguration(message)

        # The parser would end the process.
        parser.error = refuse  # type: ignore[assignment,method-assign]
        return configuration.parse_configured(parser, self._process, self._arguments)


def hangup_reloads() -> bool:
    """Return whether SIGHUP asks to reload. In a terminal it says that the terminal is gone, and
    the process has to end."""
    try:
        return not sys.stdin.isatty()
    except (AttributeError, ValueError):
        return True
