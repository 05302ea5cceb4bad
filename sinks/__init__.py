"""Sinks: what hands snapshots on, one module or package each."""
