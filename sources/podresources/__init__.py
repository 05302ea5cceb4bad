"""Gets the holders of GPUs from the kubelet, at its pod-resources socket."""
