"""LIKE patterns of one operand, looked up together."""
