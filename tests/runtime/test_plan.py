"""From a server's file to a plan: whose thresholds are taken."""

import json

import pytest
from executor_client import make_config

import trmodel
from trmodel.errors import InfeasibleError, InputError
from trmodel.runtime.desk import Desk
from trmodel.runtime.front import Front
from trmodel.runtime.plan import make_plan


@pytest.fixture
def tuned(tmp_path):
    path = tmp_path / "thresholds.json"
    path.write_text(json.dumps(trmodel.tune("a100-paper", N=4).to_dict(every_row=True)))
    return path


def test_thresholds_of_another_profile_are_refused_unless_forced(tuned):
    assert make_plan(make_config(thresholds=str(tuned))).vectors[3] == (1, 3)
    with pytest.raises(InputError, match=r"profile: the thresholds are for a100-paper, .*--force"):
        make_plan(make_config(thresholds=str(tuned), profile="a100"))
    forced = make_config(thresholds=str(tuned), profile="a100", force_thresholds=True)
    assert make_plan(forced).vectors[3] == (1, 3)


def test_thresholds_of_other_models_or_that_deadlock_are_refused(tuned):
    document = json.loads(tuned.read_text())
    tuned.write_text(json.dumps(document | {"models": ["a", "b"]}))
    with pytest.raises(InputError, match="models: the thresholds are for a, b, this server has"):
        make_plan(make_config(thresholds=str(tuned)))
    tuned.write_text(json.dumps(document | {"thresholds": [[1, 2]]}))
    with pytest.raises(InfeasibleError, match="can deadlock at N = 1"):
        make_plan(make_config(thresholds=str(tuned)))


def test_rows_that_never_apply_are_dropped():
    desk = Desk(2, 0, max_live=3, max_queue=0, vectors=((1, 1),))
    desk.propose(((1, 1),) * 100)
    assert len(desk.vectors) == 3


def test_a_subserver_that_cannot_run_is_not_started_again_and_again(tmp_path):
    taken = tmp_path / "taken"
    taken.mkdir()
    transport = {"models": {"Qwen3-32B": f"ipc://{taken}"}}
    front = Front(make_plan(make_config(transport=transport)))
    front.start()
    try:
        assert not front.wait_until_ready(30.0)
        assert front.failed == "the subserver of Qwen3-32B cannot run; its log says why"
        assert front.restarts == [0, 0]
    finally:
        front.stop()
