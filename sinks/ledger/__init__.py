"""The sink `ledger`: stores usage and holdings in an SQLite file."""
