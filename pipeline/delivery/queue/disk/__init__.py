"""A queue in a folder: segments of records, and a cursor that tells what is done with.

Segments are files `<number>.seg`, written at the end and read from the front. Each record carries
its *position*, the points that stand before it, so that whatever is missing can be counted: it is
the gap before the next one that is found. The cursor holds what became of all points beside the
place up to which they are done with, and both change in one write.
"""
