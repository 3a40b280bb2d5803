"""Metrics and health of a process, over HTTP, for those who run it."""
