from tests.fakes.nvml.fixtures import fake_nvml

__all__ = ["fake_nvml"]
