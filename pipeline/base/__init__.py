"""What every other package may use: clock, errors, logs, telemetry, channels, texts."""
