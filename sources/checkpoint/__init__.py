"""Reads the holders of GPUs from the kubelet's checkpoint of device plugins."""
