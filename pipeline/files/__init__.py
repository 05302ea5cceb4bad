"""Reading, watching and replacing files that podgpu shares with other programs.

What a file means is not handled here.
"""
