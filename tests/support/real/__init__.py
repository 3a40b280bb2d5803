"""Real rows as several streams, what they are asked, and DuckDB as judge."""
