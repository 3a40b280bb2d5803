"""A file with the key of encrypted copies, or of the state of a pull."""

from __future__ import annotations

from pathlib import Path

KEY_BYTES = 32


def read_key_file(path: Path) -> bytes:
    """Return the key in a file: 32 bytes, or 64 hexadecimal digits. Raise OSError, or ValueError
    for another content."""
    content = path.read_bytes()
    if len(content) == KEY_BYTES:
        return content
    try:
        key = bytes.fromhex(content.decode("ascii").strip())
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise ValueError(f"{path} has neither 32 bytes nor 64 hexadecimal digits")
    return key
