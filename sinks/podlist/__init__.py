"""Keeps koordinator's file of who holds which GPU, for those who read that and nothing else."""
