"""Reports on the usage of several nodes, from archives and ledger files. All sums are in SQL."""
