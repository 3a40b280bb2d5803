"""Tests of the port for metrics and health."""
