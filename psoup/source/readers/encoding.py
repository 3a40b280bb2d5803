"""Texts in other encodings, as UTF-8."""

from __future__ import annotations

import codecs
import io
from typing import Any

from psoup.source.errors import BadInput

BOM = "\ufeff"
_UTF8_BOM = codecs.BOM_UTF8


def codec_name(encoding: str) -> str:
    """Return Python's name of an encoding of texts. Raises BadInput."""
    try:
        info = codecs.lookup(encoding)
    except (LookupError, ValueError):
        raise BadInput(f"unknown encoding {encoding!r}") from None
    if not info._is_text_encoding:
        raise BadInput(f"{encoding!r} is no encoding of texts")
    return info.name


def is_ascii_based(encoding: str) -> bool:
    """Return whether line ends and quotes are single bytes, as in all but the wide encodings."""
    return '",\n'.encode(encoding) == b'",\n'


def as_utf8(content: bytes, encoding: str, final: bool) -> bytes:
    """Return whole lines in UTF-8. What is no text in the encoding is no UTF-8 either.

    Without `final`, an incomplete character at the end is left out.
    """
    if codec_name(encoding) == "utf-8":
        return content
    decoder = codecs.getincrementaldecoder(encoding)("surrogateescape")
    try:
        return decoder.decode(content, final).encode("utf-8", "surrogateescape")
    except UnicodeError as error:
        raise BadInput(f"is not {encoding}: {error}") from None


class Utf8Input(io.RawIOBase):
    """A wide encoding, such as UTF-16, read as UTF-8."""

    def __init__(self, source: Any, encoding: str) -> None:
        self._source = source
        self._decoder = codecs.getincrementaldecoder(encoding)("strict")
        self._encoding = encoding

    def read(self, size: int = -1) -> bytes | None:
        """Return some bytes, which may be more than `size`, or nothing at the end; None if the
        source has none yet."""
        while data := self._source.read(size):
            if text := self._decode(data, final=False):
                return text
        return None if data is None else self._decode(b"", final=True)

    def _decode(self, data: bytes, final: bool) -> bytes:
        try:
            return self._decoder.decode(data, final).encode()
        except UnicodeError as error:
            raise BadInput(f"is not {self._encoding}: {error}") from None


def without_bom(content: bytes) -> bytes:
    return content.removeprefix(_UTF8_BOM)
