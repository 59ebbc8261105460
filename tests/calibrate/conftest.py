import pytest

from trmodel.calibrate import fit_profile


@pytest.fixture(scope="session")
def paper_fit():
    """The built-in A100 profile fitted to the ten published points; some twenty seconds."""
    return fit_profile("a100", "paper-figure10")
