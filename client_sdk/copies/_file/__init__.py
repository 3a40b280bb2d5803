"""The file of copies: SQLite, the records of copies, their rows, and the store it belongs to."""
