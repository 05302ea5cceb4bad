"""What a source and a sink are, and what both of them use."""
