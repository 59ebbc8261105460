import threading
import time

import joblib
import pytest

import trmodel
from trmodel.search.spread import in_order


def square(n: int) -> int:
    time.sleep(0.002 * (n % 3))
    return n * n


def thread(_: int) -> str:
    time.sleep(0.02)
    return threading.current_thread().name


def test_results_come_in_order_and_from_several_threads():
    assert list(in_order(square, ((n,) for n in range(20)))) == [n * n for n in range(20)]
    names = set(in_order(thread, ((n,) for n in range(8))))
    assert len(names) == min(joblib.cpu_count(), 8) or len(names) > 1


def test_a_caller_may_choose_one_job():
    with joblib.parallel_config(n_jobs=1):
        assert set(in_order(thread, ((n,) for n in range(4)))) == {threading.main_thread().name}


def test_few_jobs_run_ahead_and_closing_starts_no_more():
    begun: list[int] = []

    def job(n: int) -> int:
        begun.append(n)
        return n

    results = in_order(job, ((n,) for n in range(10_000)))
    assert next(results) == 0
    results.close()
    count = len(begun)
    time.sleep(0.05)
    assert len(begun) == count < 1000


@pytest.mark.filterwarnings("ignore")
def test_a_back_end_that_gives_results_at_the_end_only_is_served_in_portions():
    with joblib.parallel_config(backend="multiprocessing", n_jobs=2):
        assert list(in_order(square, ((n,) for n in range(300)))) == [n * n for n in range(300)]


@pytest.mark.filterwarnings("ignore")
def test_a_dask_cluster_takes_a_search_and_finds_the_same():
    distributed = pytest.importorskip("distributed")
    here = {
        method: trmodel.tune("a100-paper", [4], method=method).to_dict()
        for method in ("exact", "simulated")
    }
    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=2, processes=True, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
        joblib.parallel_config(backend="dask"),
    ):
        there = {
            method: trmodel.tune("a100-paper", [4], method=method).to_dict() for method in here
        }
        tasks = client.run(lambda dask_worker: dask_worker.state.transition_counter)
    assert there == here
    assert sum(tasks.values()) > 10
