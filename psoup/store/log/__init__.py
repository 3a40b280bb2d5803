"""The log: `log` appends and reads commits, `events` are what they hold, `event_table` how that is
written, `position` their places; `decoding` makes rows of them again."""
