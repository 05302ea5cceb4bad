"""Reads the page of a running dcgm-exporter."""
