"""Rows of streams: their types and schema, how batches are accepted, and how rows are held."""
