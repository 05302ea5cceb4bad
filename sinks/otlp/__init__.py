"""The sink `otlp`: sends readings and log records to an OpenTelemetry (OTLP) receiver."""
