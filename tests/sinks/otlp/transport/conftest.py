"""Set the environment variables that gRPC reads at import, before any test imports it."""

import pipeline.net.grpc_library  # noqa: F401
