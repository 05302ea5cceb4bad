"""Reads who holds which GPU from the file that koordinator keeps on the node."""
