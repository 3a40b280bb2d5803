"""The log: `log` appends and reads commits, `events` are their contents, `event_table` the rows
they are stored as, `position` their places; `decoding` decodes the rows of batches."""
