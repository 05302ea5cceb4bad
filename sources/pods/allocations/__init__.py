"""Reads the devices of a pod from the annotations that schedulers write.

A module for each scheduler maps what is known of a pod to what its containers hold; koordinator's
is in `pipeline.allocations`. `annotation_table` selects the reader of an annotation.
`MalformedError` means that an annotation cannot be read. Then podgpu ignores the whole annotation.
"""
