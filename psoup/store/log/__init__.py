"""The log: `log` appends and reads commits, `events` are what they hold, `position` their places,
`decoding` makes rows of them again."""
