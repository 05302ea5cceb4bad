"""The sink `prometheus`: serves metrics with dcgm-exporter's names and labels."""
