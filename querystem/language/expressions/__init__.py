"""Expressions: sqlglot's nodes become typed, bound expressions."""
