"""Who used how much, kept in a file of SQLite."""
