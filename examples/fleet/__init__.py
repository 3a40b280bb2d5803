"""A fleet of vehicles, and two phones that keep copies: what `scripts/demo --page` shows."""
