"""The page that Prometheus scrapes, in the names and labels of dcgm-exporter."""
