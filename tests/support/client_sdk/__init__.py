"""Helpers over the client: stores and networks that are not real, and what they must do."""
