"""Rows of the table of checks, grouped by what they examine."""
