"""The errors that stop the engine.

EngineError
├── SecondEngine     another engine has this store
├── ServersRunning   a repair needs the store for itself
├── JarsUnavailable  Delta's jars are neither here nor to be fetched
└── EngineFailed     a step failed again and again; its cause is chained
"""

from __future__ import annotations


class EngineError(Exception):
    """The root of this package's errors."""


class SecondEngine(EngineError):
    pass


class ServersRunning(EngineError):
    pass


class JarsUnavailable(EngineError):
    pass


class EngineFailed(EngineError):
    pass
