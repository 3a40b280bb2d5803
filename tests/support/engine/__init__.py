"""Helpers over the engine: what it is given, how it is stepped, how its tables are read."""
