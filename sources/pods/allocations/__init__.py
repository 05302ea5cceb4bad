"""Which devices a pod was given, as schedulers write it into its annotations.

One module for each scheduler, each a function from what is known of a pod to what its containers
hold; `MalformedError` says that the annotation can't be read, and costs that annotation alone: half
of an allocation would be a wrong one.
"""

from sources.pods.allocations.annotation_table import allocations, reserved, shared
from sources.pods.allocations.pod_facts import AnnotationProblem, PodFacts

__all__ = ["AnnotationProblem", "PodFacts", "allocations", "reserved", "shared"]
