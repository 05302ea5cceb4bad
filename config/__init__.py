"""The configuration file: parses YAML, returns checked and typed values, reports all problems.

This package knows nothing about sources, sinks or the pipeline. Each component describes its own
options as a ``msgspec.Struct``; they reach this package through
:class:`config.converter.Kinds`.
"""
