"""Asks a DCGM host engine, through DCGM's own client library."""
