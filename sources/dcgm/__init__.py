"""The dcgm source: reads the metrics page of a running dcgm-exporter."""
