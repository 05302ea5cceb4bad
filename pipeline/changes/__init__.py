"""What has happened: holdings that ended and XID errors, for sinks that tell of each once."""
