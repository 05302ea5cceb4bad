"""The sink `otlp`: pushes readings to an OpenTelemetry receiver."""
