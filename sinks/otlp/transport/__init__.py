"""Send requests to an OTLP receiver: endpoints, credentials, transports, meaning of responses."""
