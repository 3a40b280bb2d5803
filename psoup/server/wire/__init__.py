"""The wire: messages of psoup.v1 made from values, and values read from messages."""
