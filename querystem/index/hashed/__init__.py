"""Predicates that fix operands by equality, found by hash: what does not match costs nothing."""

from __future__ import annotations

from querystem.index.hashed.group import Group
from querystem.index.hashed.split import Split, split

__all__ = ["Group", "Split", "split"]
