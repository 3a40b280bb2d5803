"""The errors of sources.

SourceError              the source can't go on
├── BadInput             the input as a whole can't be read: a wrong format, a cut file
├── BadSettings          sources.toml, or a command, is wrong
├── BadRowFound          a row does not fit, and bad rows stop the source
├── AnotherCopy          another process feeds the same stream from the same place
├── NoMark               the stream has rows, and the store does not know how far they reach
└── PlaceLost                 what the mark needs is not there any more
SourceAway               the source does not answer; later it may
"""

from __future__ import annotations


class SourceError(Exception):
    """The source can't go on without a person."""


class BadInput(SourceError, ValueError):
    """The input as a whole can't be read."""


class BadSettings(SourceError, ValueError):
    """The settings of a source are wrong."""


class BadRowFound(SourceError):
    """A row does not fit, and bad rows stop the source. Everything before it is in the store."""


class AnotherCopy(SourceError):
    """Another process runs this source."""


class NoMark(SourceError):
    """The stream has rows, and the store has no mark of this source."""


class PlaceLost(SourceError):
    """What the mark needs is not there any more, or never was."""


class SourceAway(Exception):
    """The source does not answer. The same may succeed later."""
