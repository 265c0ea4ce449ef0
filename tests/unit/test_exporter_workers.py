"""Threads that are used again."""

from __future__ import annotations

import threading
from functools import partial

from exporter_waiting import PATIENCE, until

from ibmon.exporter.workers import Workers


def run_and_wait(workers, times):
    """Idents of the threads that ran jobs one after the other."""
    idents = []

    def job():
        idents.append(threading.get_ident())

    for count in range(1, times + 1):
        workers.run(job)
        until(partial(lambda wanted: len(idents) == wanted and workers._idle > 0, count))
    return idents


def test_one_job_after_the_other_runs_in_one_thread():
    workers = Workers("test")
    assert len(set(run_and_wait(workers, 5))) == 1


def test_jobs_that_overlap_do_not_wait_for_each_other():
    workers, together = Workers("test"), threading.Barrier(4, timeout=PATIENCE)
    for _ in range(3):
        workers.run(together.wait)
    together.wait()  # would time out if one of them had to wait for another
    until(lambda: workers._idle == 3)
    for _ in range(3):
        workers.run(together.wait)
    together.wait()


def test_a_thread_without_work_ends():
    workers = Workers("test-ends", patience=0.01)
    for _ in range(2):
        ran = threading.Event()
        workers.run(ran.set)
        assert ran.wait(PATIENCE)
        until(lambda: not any(t.name == "test-ends" for t in threading.enumerate()))
        assert workers._idle == 0


def test_no_job_is_lost_where_threads_give_up_all_the_time():
    workers, done, lock = Workers("test", patience=0.0), [], threading.Lock()

    def job():
        with lock:
            done.append(1)

    for _ in range(300):
        workers.run(job)
    until(lambda: len(done) == 300)
    until(lambda: workers._idle == 0)
