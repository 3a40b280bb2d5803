"""Answers pulled on a schedule into files."""

from __future__ import annotations

from client_sdk.pulls._errors import BadPull

__all__ = ["BadPull"]
