from tests.fakes.nvml.fixtures import fake_nvml as fake_nvml  # noqa: PLC0414 - a fixture
