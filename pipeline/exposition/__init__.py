"""The page in Prometheus' exposition formats, in the names and labels of dcgm-exporter.

Sinks that show a page stand on this: they know how it is handed on, and nothing of what is on it.
"""
