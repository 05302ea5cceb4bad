"""A runtime's end of NRI, like containerd's; it takes offence where containerd breaks."""

from tests.fakes.nri.runtime import FakeRuntime

__all__ = ["FakeRuntime"]
