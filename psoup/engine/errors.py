"""The errors that stop the engine.

EngineError
├── SecondEngine       another engine has this store
├── ServersRunning     a repair needs the store without servers
├── UnsuitableSession  a given Spark session, or an executor of it, lacks what the engine needs
├── JarsUnavailable    Delta's jars are not cached and can't be fetched, or are not the tested ones
└── EngineFailed       a step failed on every retry; its cause is chained
"""

from __future__ import annotations


class EngineError(Exception):
    """The root of this package's errors."""


class SecondEngine(EngineError):
    pass


class ServersRunning(EngineError):
    pass


class UnsuitableSession(EngineError):
    pass


class JarsUnavailable(EngineError):
    pass


class EngineFailed(EngineError):
    pass
