"""Callers and their permissions: no wire, no server."""
