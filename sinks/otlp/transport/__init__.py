"""How requests get to a receiver: where it is, how it is asked, and what its answers mean."""
