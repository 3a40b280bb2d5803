"""How `psoup server --help` and `psoup engine --help` look, and how their options give sizes."""

from __future__ import annotations

import argparse
import re

_UNITS = {"": 1, "B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Shows the default of each option that has one, and the example in its own lines."""

    def _get_help_string(self, action: argparse.Action) -> str:
        text = action.help or ""
        default = action.default
        if default is None or default is False or default is argparse.SUPPRESS:
            return text
        # 30, not 30.0: a default is shown as one would type it.
        shown = "%(default)g" if isinstance(default, float) else "%(default)s"
        return f"{text} (default: {shown})"


def format_size(byte_count: int) -> str:
    """Return a size as an option takes it, such as 512MB; units are powers of 1,024."""
    for unit, factor in (("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10)):
        if byte_count and byte_count % factor == 0:
            return f"{byte_count // factor}{unit}"
    return str(byte_count)


def parse_size(text: str) -> int:
    """Return the bytes of `512MB`, `1 GiB` or `1048576`; units are powers of 1,024. Raise
    ValueError."""
    match = re.fullmatch(r"(\d+)\s*([KMG]?)I?(B?)", text.strip().upper())
    if match is None:
        raise ValueError(f"{text!r} is not a size such as 512MB")
    unit = match[2] + "B" if match[2] else ""
    return int(match[1]) * _UNITS[unit]
