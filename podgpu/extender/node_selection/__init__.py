"""What a pod asks for, which nodes fit, and how well they do. Pure: no I/O, no tasks, no clock."""
