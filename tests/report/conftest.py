import pytest

import trmodel


@pytest.fixture(scope="session")
def table():
    """The paper's system at three concurrencies."""
    return trmodel.tune("a100-paper", N=range(2, 5))


@pytest.fixture(scope="session")
def three_models():
    return trmodel.tune("a100-ensemble", N=[2, 3])


@pytest.fixture(scope="session")
def one_model():
    """A single model: nothing is routed, and waiting for a batch can still pay."""
    from trmodel.search import tune_system

    system = trmodel.RoutedSystem(["only"], [[10.0, 11.0, 12.0]], [[1.0]], [[1.0]], 3)
    return tune_system(system, [2, 3])
