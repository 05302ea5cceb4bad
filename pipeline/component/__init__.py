"""Contracts of sources and sinks, the registry of their kinds, and code that both share."""
