"""Marks that a person writes: where a source begins, or goes on."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from psoup.source.errors import BadSettings, PlaceLost
from psoup.source.feeding.piece import ASIDE, REACHED, ROW, Mark, encode_mark
from psoup.source.mapping import load_json

# Keys that the feed adds to the marks of all sources.
_FEED_KEYS: Mapping[str, type] = {ROW: int, ASIDE: int, REACHED: int}
_SHOWN_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class MarkForm:
    """The form of a source's marks: the types of the keys that they have, by name.

    `words` are the other ways to name a place, such as `earliest`; `example` is a mark. A key in
    `patterns` has a text that matches.
    """

    words: tuple[str, ...]
    example: str
    required: Mapping[str, type] = field(default_factory=dict)
    optional: Mapping[str, type] = field(default_factory=dict)
    patterns: Mapping[str, re.Pattern[str]] = field(default_factory=dict)

    def read(self, text: str) -> dict[str, Any]:
        """Return the mark that a text is. Raises BadSettings."""
        try:
            mark = load_json(text.encode())
        except ValueError:
            raise self.misfit(text) from None
        if not self.fits(mark):
            raise self.misfit(text)
        return dict(mark)

    def check(self, mark: Mark) -> None:
        """Raise PlaceLost if a mark of the store is not one of this source; none at all is."""
        if mark and not self.fits(mark):
            raise PlaceLost(
                f"the mark {encode_mark(mark).decode()[:_SHOWN_CHARACTERS]} was not written by "
                f"this source, whose marks are such as {self.example}; go on with skip"
            )

    def fits(self, mark: Any) -> bool:
        """Return whether a value is a mark of this source."""
        types = {**_FEED_KEYS, **self.optional, **self.required}
        return (
            isinstance(mark, dict)
            and self.required.keys() <= mark.keys() <= types.keys()
            and all(self._has_form(name, value, types[name]) for name, value in mark.items())
        )

    def _has_form(self, name: str, value: Any, expected: type) -> bool:
        if type(value) is not expected:
            return False
        if isinstance(value, str) and name in self.patterns:
            return self.patterns[name].fullmatch(value) is not None
        return not isinstance(value, int) or value >= 0

    def misfit(self, text: str) -> BadSettings:
        """Return the error for a text that names no place of this source."""
        ways = ", ".join((*self.words, "or a mark such as " + self.example))
        return BadSettings(f"{text[:_SHOWN_CHARACTERS]!r} is no place of this source: write {ways}")
