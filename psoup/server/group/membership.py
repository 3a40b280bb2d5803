"""A server's place in a group, as its settings have it."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

# The option with which a group starts its members; people write --servers.
OPTION = "--group"


@dataclass(frozen=True, slots=True)
class Membership:
    """The place of a server in a group of `members`; `member` counts from 0. The counts of the
    group are in the file of `descriptor`, which the server inherits."""

    descriptor: int
    member: int
    members: int

    def option(self) -> str:
        """Return the value of the option that says this."""
        return f"{self.descriptor}:{self.member}/{self.members}"


def parse_membership(text: str) -> Membership:
    """Return what an option says. Raise argparse.ArgumentTypeError."""
    try:
        descriptor, _, place = text.partition(":")
        member, _, members = place.partition("/")
        membership = Membership(int(descriptor), int(member), int(members))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no place in a group") from None
    if not 0 <= membership.member < membership.members or membership.descriptor < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no place in a group")
    return membership
