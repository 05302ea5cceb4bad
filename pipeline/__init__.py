"""The core: what flows, how it is joined, who runs it.

Belongs here: the model, the field catalogue, channels, the join, supervision, the runtime, the
registry, the shared HTTP listener, our own telemetry and the command line.

Doesn't belong here: anything that knows one source or one sink. The registry names them as dotted
paths and loads them when the configuration asks for them.
"""
