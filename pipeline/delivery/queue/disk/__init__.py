"""A queue in a folder: segments of records, and a cursor that says which records are settled.

Segments are files `<number>.seg`; records are appended to the last and read from the first. Each
record has a *position*: the number of points before it. So missing points can be counted: they are
the gap before the next record that is found. The cursor holds the counts of all points together
with the place up to which records are settled; one write changes both.
"""
