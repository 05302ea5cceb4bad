"""The rows of the table of checks, by what they look at."""
