"""podgpu's version."""

from importlib.metadata import PackageNotFoundError, version

try:
    VERSION = version("podgpu")
except PackageNotFoundError:  # a source tree that is not installed
    VERSION = "0+unknown"
