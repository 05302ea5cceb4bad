"""Reads who holds which GPU from the file in which the kubelet keeps what it handed out."""
