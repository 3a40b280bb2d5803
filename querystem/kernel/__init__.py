"""The vectorised meaning of expressions: the same code in the engine and in the server."""

from __future__ import annotations

from querystem.kernel.evaluation import Frame, evaluate, matches

__all__ = ["Frame", "evaluate", "matches"]
