"""The configuration file: YAML in, checked and typed values out, every problem at once.

This package knows nothing of sources, sinks or the pipeline. The options of a component are
described by the component itself, as a ``msgspec.Struct``, and reach this package through
:class:`config.component_kinds.Kinds`.
"""
