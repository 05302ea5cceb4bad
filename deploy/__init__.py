"""What puts podgpu on a cluster, and what is made for that."""
