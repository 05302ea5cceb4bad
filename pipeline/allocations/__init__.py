"""Readers of the annotations that schedulers write into pods, for all sources that see them.

`MalformedError` says that an annotation cannot be read. Then the whole annotation is ignored, and
no other: half of an allocation would be wrong.
"""
