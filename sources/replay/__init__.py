"""Plays a recording of a node's events, as if they happened now."""
