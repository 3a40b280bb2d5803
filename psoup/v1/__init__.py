"""The wire, generated from proto/psoup/v1 by scripts/proto."""
