"""Client for a Kubernetes API server: shared sessions, credentials, requests, and a reflector.

A reflector keeps a copy of a collection up to date. The sources interpret the objects.
`kubernetes_asyncio` is imported only here.
"""
