"""The hostengine source: reads fields from a DCGM host engine, through DCGM's client library."""
