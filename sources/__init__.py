"""Sources: what observes the node, one module or package each."""
