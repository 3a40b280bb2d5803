"""Helpers of tests of answers and of copies."""
