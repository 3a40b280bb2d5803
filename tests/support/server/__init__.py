"""Helpers over a server: as a process, in this process, with epochs made by hand."""
