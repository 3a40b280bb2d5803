"""Helpers of the tests that are not tests."""
