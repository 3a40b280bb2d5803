"""Tests of what all processes have: their options and their log."""
