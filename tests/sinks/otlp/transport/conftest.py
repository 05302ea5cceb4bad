"""The variables that gRPC reads when it is loaded are set before a test's own import of it."""

import pipeline.net.grpc_client  # noqa: F401
