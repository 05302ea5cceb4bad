"""Regular expressions that match in bounded time, whatever the pattern.

Python's engine backtracks: `(a+)+b` may take years. This engine has the syntax of Go and
Prometheus, and follows all alternatives at the same time, one character after the other.
"""

from config.patterns.pattern import Pattern

__all__ = ["Pattern"]
