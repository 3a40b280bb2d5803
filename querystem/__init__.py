"""Queries: their language, their bound form, the kernel, the predicate index. Pure."""
