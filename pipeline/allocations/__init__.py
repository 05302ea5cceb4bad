"""What schedulers write into a pod's annotations, for all sources that see them.

`MalformedError` says that an annotation can't be read, and costs that annotation alone: half of an
allocation would be a wrong one.
"""

from pipeline.allocations.annotation_values import AllocatedDevices, MalformedError

__all__ = ["AllocatedDevices", "MalformedError"]
