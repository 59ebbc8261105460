"""Servers for the tests of the executor: as commands, and in this process."""

import pytest
from executor_client import make_config
from server_process import Server

from trmodel.runtime.front import Front
from trmodel.runtime.plan import make_plan


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """One that is ready, shared by a module's tests."""
    made = Server(tmp_path_factory.mktemp("server")).start().ready()
    yield made
    assert made.end() == 0


@pytest.fixture
def servers(tmp_path):
    """Make servers that are ended with the test."""
    made = []

    def make(**changes):
        folder = tmp_path / str(len(made))
        folder.mkdir()
        made.append(Server(folder, **changes))
        return made[-1]

    yield make
    for each in made:
        if each.process is not None:
            each.end()


@pytest.fixture
def fronts():
    """Start front ends with their subservers, which are ended with the test."""
    started = []

    def start(plan=None, places=None, **changes):
        front = Front(plan or make_plan(make_config(**changes)), places)
        started.append(front)
        front.start()
        assert front.wait_until_ready(60.0)
        return front

    yield start
    for front in started:
        front.stop()
