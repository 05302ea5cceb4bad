"""The configuration file: parses YAML, returns checked and typed values, reports problems.

This package knows nothing about sources, sinks or the pipeline. Each component describes its own
options as a ``msgspec.Struct``. The loader gets these classes as a ``config.converter.Kinds``.
"""
