from tests.fakes.dcgm.fixtures import fake_dcgm

__all__ = ["fake_dcgm"]
