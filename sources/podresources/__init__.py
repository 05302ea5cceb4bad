"""Asks the kubelet who holds which GPU, on its pod-resources socket."""
