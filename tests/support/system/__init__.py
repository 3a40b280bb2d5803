"""Helpers over a whole store: its processes, and scenarios that are judged by the oracle."""
