"""The archive: usage of many nodes as Parquet objects below one location.

docs/archive-format.md describes rows, keys and the rules of compaction.
"""
