"""Topology of a node's GPUs, their availability, and the choice of GPUs for a pod. Pure."""
