"""Keeps the topology of the node, and what is free of it, in an annotation of its Node."""
