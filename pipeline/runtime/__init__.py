"""Runs sources, the join and sinks: start, reload, stop, supervision, health."""
