import pytest
from executor_client import make_config

from trmodel.runtime.front import Front
from trmodel.runtime.plan import make_plan


@pytest.fixture
def serve():
    fronts = []

    def start(plan=None, places=None, **changes):
        front = Front(plan or make_plan(make_config(**changes)), places)
        fronts.append(front)
        front.start()
        assert front.wait_until_ready(60.0)
        return front

    yield start
    for front in fronts:
        front.stop()
