"""Statements: CREATE, DROP, GRANT and REVOKE."""
