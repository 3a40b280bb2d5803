"""Who calls, and what that caller may do: no wire, no server."""
