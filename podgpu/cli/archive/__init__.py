"""The command `podgpu archive`: writes usage to an archive, and compacts the archive."""
