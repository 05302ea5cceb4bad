"""A fake NRI runtime like containerd. It fails a test where containerd would stall or crash."""

from tests.fakes.nri.runtime import FakeRuntime

__all__ = ["FakeRuntime"]
