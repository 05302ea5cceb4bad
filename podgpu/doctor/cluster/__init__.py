"""`podgpu doctor --cluster`: fetches a cluster's objects once, and checks them."""
