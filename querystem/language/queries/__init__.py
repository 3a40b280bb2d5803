"""Queries: sqlglot's tree becomes a bound query, clause by clause."""
