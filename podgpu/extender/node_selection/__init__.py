"""What a pod requests, which nodes fit, and how well. Pure: no I/O, no tasks, no clock."""
