"""The sink `textfile`: writes metrics to a file for node_exporter's textfile collector."""
