"""The source `replay`: plays a recording of a node's events, as if they occurred now."""
