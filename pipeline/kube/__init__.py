"""Talking to an API server: sessions that components share, and a reflector of what it holds.

Belongs here: credentials, requests, streams, and keeping a copy of a collection true. What the
objects mean is their source's business. `kubernetes_asyncio` is imported here alone.
"""
