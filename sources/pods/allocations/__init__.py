"""Reads the devices of a pod from the annotations that schedulers write.

There is one module for each scheduler, with functions that map what is known of a pod to what its
containers hold. `MalformedError` means that an annotation cannot be read. The whole annotation is
ignored then, since a part of an allocation would be wrong.
"""
