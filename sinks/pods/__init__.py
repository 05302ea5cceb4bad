"""The sink `pods`: writes the uuids of the devices that a pod holds into the pod's annotations."""
