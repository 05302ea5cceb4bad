"""Reading, watching and replacing files that podgpu shares with other programs.

This package does not interpret the content of files.
"""
