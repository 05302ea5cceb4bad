"""A simulated fleet: the ledgers of many nodes, written by the ledger's own code, and its archive.

python -m tests.bench.fleet --nodes 1000 --days 30 --out DIR --workers 2
"""
