"""A group: several servers of one machine behind one port, which count quotas together."""
