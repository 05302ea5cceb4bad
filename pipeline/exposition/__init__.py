"""Render snapshots as a page in the Prometheus exposition formats.

Metrics and labels have the names of dcgm-exporter, or podgpu's own names. The sinks `prometheus`
and `textfile` serve or write the page; this package defines its contents.
"""
