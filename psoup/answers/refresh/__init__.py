"""The refresh points that an answer is as of, and the rows and events that make them."""
