"""Syntax: tokens become sqlglot's tree, and windows and REFRESH are read from theirs."""
