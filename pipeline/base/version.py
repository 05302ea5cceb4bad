"""Which podgpu this is."""

from importlib.metadata import PackageNotFoundError, version

try:
    VERSION = version("podgpu")
except PackageNotFoundError:  # a source tree that was never installed
    VERSION = "0+unknown"
