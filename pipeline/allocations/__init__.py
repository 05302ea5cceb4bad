"""Readers of the annotations that schedulers write to pods, for all sources that see pods.

`MalformedError` means that an annotation cannot be read. Then the whole annotation is ignored,
because a part of an allocation would be wrong. Other annotations are still read.
"""
