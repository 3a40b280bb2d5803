"""Rows as texts, JSON and CSV, and texts as rows: what files, pulls and the web port share.

Needs Arrow and nothing else of PSoup.
"""
