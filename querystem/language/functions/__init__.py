"""The functions and aggregates of the language: their table, their types, their page."""
