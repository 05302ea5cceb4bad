"""Client for a Kubernetes API server: shared sessions, credentials, requests, and a reflector.

A reflector keeps a copy of a collection up to date; the sources interpret its objects. Only this
package imports `kubernetes_asyncio`.
"""
