"""Sources: components that observe the node and emit events. One package each."""
