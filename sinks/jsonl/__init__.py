"""The sink `jsonl`: writes readings and events as JSON lines, to a file or to standard output."""
