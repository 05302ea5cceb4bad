"""Follows this node's pods through the API server: who they are, and what schedulers gave them."""
