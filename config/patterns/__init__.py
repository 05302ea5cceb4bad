"""Regular expressions that answer in bounded time, whatever they are.

Python's own try one way after the other: for `(a+)+b` that may take years. These are written as Go
and Prometheus have them, and go through all ways at once, a letter at a time.
"""

from config.patterns.pattern import Pattern

__all__ = ["Pattern"]
