"""Draws the beginning of the README's session as a terminal: docs/images/session.svg.

    python scripts/session_picture.py

Run it after the session in README.md has changed; a test compares the two.
"""

from __future__ import annotations

import re
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "images" / "session.svg"
# The picture ends with the output of the first command that begins with this.
LAST_COMMAND = "$ psoup invoke"
LINE_HEIGHT, CHARACTER_WIDTH, MARGIN, BAR_HEIGHT = 19, 7.85, 22, 34

STYLE = """
    .frame { fill: #1b1f2a; stroke: #3a4152 }
    .bar { fill: #262b38 }
    text { font: 13px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; fill: #d5dae6;
           white-space: pre }
    .prompt { fill: #8bd49c; font-weight: 600 }
    .command { fill: #ffffff; font-weight: 600 }
    .work { fill: #8f98ad }
"""


def picture(readme: str) -> str:
    """Return the SVG of the session's beginning."""
    lines = _beginning(readme)
    width = max(map(len, lines)) * CHARACTER_WIDTH + 2 * MARGIN
    height = BAR_HEIGHT + len(lines) * LINE_HEIGHT + MARGIN
    parts = [
        '<svg xmlns="http://www.w3.org/2000/svg" role="img"',
        f'     viewBox="0 0 {width:.0f} {height:.0f}"',
        '     aria-label="A session: create a stream, register a query, publish, invoke">',
        f"  <style>{STYLE}  </style>",
        f'  <rect class="frame" x="0.5" y="0.5" width="{width - 1:.0f}" height="{height - 1:.0f}"'
        ' rx="10"/>',
        f'  <path class="bar" d="M1 {BAR_HEIGHT - 8} V11 A10 10 0 0 1 11 1 H{width - 11:.0f}'
        f' A10 10 0 0 1 {width - 1:.0f} 11 V{BAR_HEIGHT - 8} z"/>',
    ]
    for place, colour in enumerate(("#ff6159", "#ffbd2e", "#28c941")):
        parts.append(f'  <circle cx="{MARGIN + place * 18}" cy="14" r="5.5" fill="{colour}"/>')
    quoted = False
    for number, line in enumerate(lines):
        y = BAR_HEIGHT + 12 + number * LINE_HEIGHT
        is_command = line.startswith("$ ") or quoted
        quoted = (line.count('"') % 2 == 1) != quoted if is_command else False
        text = _styled(line, is_command)
        parts.append(f'  <text x="{MARGIN}" y="{y}" xml:space="preserve">{text}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _beginning(readme: str) -> list[str]:
    """Return the lines up to the output of the first LAST_COMMAND."""
    session = re.search(r"^```console\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)
    assert session, "README.md has no session"
    beginning, _, end = session[1].partition(LAST_COMMAND)
    output = re.match(r"(?:(?!\$ ).*\n)*", end.partition("\n")[2])
    assert output
    command = LAST_COMMAND + end.partition("\n")[0]
    return f"{beginning}{command}\n{output[0]}".rstrip("\n").split("\n")


def _styled(line: str, is_command: bool) -> str:
    if line.startswith("$ "):
        return f'<tspan class="prompt">$</tspan><tspan class="command">{escape(line[1:])}</tspan>'
    if is_command:
        return f'<tspan class="command">{escape(line)}</tspan>'
    if re.match(r"  epoch|\d+ rows? at", line):
        return f'<tspan class="work">{escape(line)}</tspan>'
    return escape(line)


if __name__ == "__main__":
    PICTURE.write_text(picture((ROOT / "README.md").read_text(encoding="utf-8")), encoding="utf-8")
    print(f"written to {PICTURE.relative_to(ROOT)}")
