"""Measuring a server behind its URL, and what it says of re-tuning."""

from contextlib import closing
from threading import Timer

import httpx
import pytest

from trmodel.errors import InputError, TrmodelError, UsageError
from trmodel.runtime.bench.point import measure_point
from trmodel.runtime.bench.running import running
from trmodel.runtime.bench.target import Url

LONG = 2000


def test_a_point_is_measured_through_http(server):
    with running(url=server.url) as target:
        point = measure_point(target, 4, (1, 3), seconds=2.0, warm_up=0.7, reply_tokens=LONG)
        point2 = measure_point(target, 2, (2, 1), seconds=1.0, warm_up=0.5, reply_tokens=LONG)
    assert point["throughput_tok_s"] == pytest.approx(point["committed_tok_s"], rel=0.1)
    assert 120 < point["throughput_tok_s"] < 230
    assert point["ledger"]["total_ms"] == pytest.approx(4000.0 / point["committed_tok_s"])
    assert min(map(int, point["per_model"][1]["batches"])) == 3
    assert min(map(int, point2["per_model"][0]["batches"])) == 2
    assert server.stats()["n"] == 0


def test_what_is_no_server_is_said_in_one_line(server):
    with closing(Url("http://127.0.0.1:9")) as url, pytest.raises(InputError, match="no answer"):
        url.stats()
    with closing(Url(f"{server.url}/none")) as url, pytest.raises(InputError, match="404"):
        url.stats()


def test_a_refused_reply_ends_the_measurement(server):
    with running(url=server.url) as target, pytest.raises(TrmodelError, match="max_tokens"):
        measure_point(target, 1, (1, 1), seconds=5.0, reply_tokens=10**6)


def test_more_requests_than_run_are_refused(server):
    with running(url=server.url) as target, pytest.raises(UsageError, match="8 requests at a time"):
        measure_point(target, 10, (1, 1), seconds=0.6, warm_up=0.6, reply_tokens=LONG)


def test_thresholds_that_change_meanwhile_are_noticed(server):
    with running(url=server.url) as target:
        change = Timer(1.5, target.set_thresholds, [((1, 1),)])
        change.start()
        with pytest.raises(TrmodelError, match="somebody else"):
            measure_point(target, 2, (1, 1), seconds=2.5, warm_up=0.5, reply_tokens=LONG)
        change.join()


def test_retunes_are_told(server, servers):
    assert httpx.get(f"{server.url}/retunes").json() == {
        "mode": "off",
        "outcomes": {},
        "decisions": [],
    }
    tuned = servers(retune={"mode": "advise", "every_s": 1.0}).start().ready()
    with running(url=tuned.url) as target:
        measure_point(target, 2, (1, 1), seconds=2.5, warm_up=0.0, reply_tokens=LONG)
    told = httpx.get(f"{tuned.url}/retunes").json()
    assert told["mode"] == "advise"
    assert told["outcomes"]["skipped"] == len(told["decisions"]) > 0
    assert "steps in the window" in told["decisions"][0]["reason"]
