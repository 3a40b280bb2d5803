"""How `psoup server --help` and `psoup engine --help` look."""

from __future__ import annotations

import argparse


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
