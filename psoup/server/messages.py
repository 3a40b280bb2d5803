"""Messages as they come over the wire, and how much memory they will take."""

from __future__ import annotations

from psoup.v1 import psoup_pb2 as pb

# A typed value takes two bytes and more on the wire, and a hundred as an object on its way to a
# column. What is left of other requests, once they are parsed, is about as large as the message.
_PARSED = 40
_KEPT = 4

# More fields than any request has.
_MOST_FIELDS = 64

_ARROW = {
    "/psoup.v1.Psoup/Publish": pb.PublishRequest.ARROW_FIELD_NUMBER,
    "/psoup.v1.Psoup/PublishStream": pb.PublishRequest.ARROW_FIELD_NUMBER,
    "/psoup.v1.Psoup/RegisterMany": pb.RegisterManyRequest.ARROW_FIELD_NUMBER,
}


def weight(method: str, message: bytes) -> tuple[int, int]:
    """The bytes a message takes while it is parsed, and once it is.

    An Arrow batch weighs nothing here: it stays bytes, and is weighed when it is unpacked.
    """
    number = _ARROW.get(method)
    if number is None:
        return _PARSED * len(message), _KEPT * len(message)
    if _has(message, number):
        return 0, 0
    return _PARSED * len(message), _PARSED * len(message)


def _has(message: bytes, number: int) -> bool:
    """Whether one of the first fields of a message has that number, which is one of bytes."""
    at, wanted = 0, number << 3 | 2
    try:
        for _ in range(_MOST_FIELDS):
            tag, at = _varint(message, at)
            if tag == wanted:
                return True
            size, after = _varint(message, at)
            at = {0: after, 1: at + 8, 2: after + size, 5: at + 4}[tag & 7]
    except (IndexError, KeyError):
        pass
    return False


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """The number there, and where it ends."""
    value = shift = 0
    while message[at] & 0x80:
        value |= (message[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
    return value | message[at] << shift, at + 1
