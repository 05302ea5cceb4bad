"""The core of podgpu: the model, the join, delivery, the HTTP server and the runtime.

Packages form layers: a package imports only from layers below its own.

Nothing in here depends on one particular source or sink. The registry names sources and sinks as
dotted paths and loads those that the configuration uses.
"""
