"""The engine: queries and data joined symmetrically in Spark, step by step."""
