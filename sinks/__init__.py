"""Sinks: components that receive snapshots and pass them on. One package each."""
