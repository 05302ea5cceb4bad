"""The page as a file, for node_exporter's textfile collector."""
