"""Spark: the session, the jobs that the engine runs on it, and the rows that they read."""
