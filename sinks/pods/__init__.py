"""Writes the uuids that a pod holds into the pod's annotations."""
