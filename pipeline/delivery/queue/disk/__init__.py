"""A queue in a folder: segments of records, and a cursor that says which records are settled.

Segments are files `<number>.seg`; records are appended to the last and read from the first. Each
record has a *position*: the number of points before it, over all segments. So missing points can be
counted: the next record that is found shows how many points are missing before it. The cursor holds
the place up to which records are settled, and the numbers of accepted, rejected and dropped points;
one write changes all of them.
"""
