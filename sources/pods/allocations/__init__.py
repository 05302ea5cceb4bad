"""Reads the devices of a pod from the annotations that schedulers write.

There is one module for each scheduler, with functions that map what is known of a pod to what its
containers hold. `MalformedError` means that an annotation cannot be read. The whole annotation is
ignored then, since a part of an allocation would be wrong.
"""

from sources.pods.allocations.annotation_table import allocations, kai_allocation
from sources.pods.allocations.pod_facts import AnnotationProblem, PodFacts

__all__ = ["AnnotationProblem", "PodFacts", "allocations", "kai_allocation"]
