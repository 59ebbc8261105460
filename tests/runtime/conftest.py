"""Servers for the tests of the HTTP face."""

import pytest
from server_process import Server


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
