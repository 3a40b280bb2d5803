"""The vectorised meaning of expressions, shared by the engine, the server and the client."""

from __future__ import annotations

from querystem.kernel.evaluation import Frame, evaluate, matches, values_of

__all__ = ["Frame", "evaluate", "matches", "values_of"]
