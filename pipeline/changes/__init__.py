"""Changes between snapshots: ended holdings and XID errors, for sinks that report each once."""
