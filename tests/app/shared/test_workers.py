"""Work that is shared out: its order, what becomes of lost workers, cancelling, and how it travels."""

from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from threading import Event

import pytest

from app.jobs.travelling import Bench, packed, unpacked, worker_settings
from app.jobs.workers import AHEAD, LOST_TWICE, Crew, WorkerLost
from app.settings import Settings
from app.shared.errors import JobCancelled, ServiceError
from coft_core.errors import CalibrationMismatch, InvalidInputError
from coft_core.text.detection import SpanDetector
from coft_core.text.user_list import UserList, UserTerm
from tests.app.shared.hired import Cluster, FakeWorker
from tests.conftest import load_tiny

SETTINGS = Settings(pipeline="none")
TOLD = worker_settings(SETTINGS)


def square(number):
    return number * number


def refuse(number):
    raise InvalidInputError(f"{number} cannot be used; give another one.")


def mismatch():
    raise CalibrationMismatch([("weights", "one", "other")])


def works(count, function=square):
    return (partial(function, number) for number in range(count))


def crew(hire, count=2, check=lambda: None, **options):
    return Crew(hire, count, check, nullcontext, **options)


def hired_by(cluster, **options):
    with cluster(SETTINGS) as hire:
        return crew(hire, **options)


class Held(FakeWorker):
    """Keeps what it is given until it is let go on, or dismissed."""

    def __init__(self, bench, go_on):
        super().__init__(bench)
        self.go_on = go_on

    def done(self, data):
        while not self.go_on.wait(0.01):
            if self.dismissed.is_set():
                raise WorkerLost("killed")
        return super().done(data)


def test_results_come_in_the_order_of_the_work_whatever_the_order_in_which_workers_end_it():
    held, free = Event(), Event()
    free.set()
    workers = [Held(Bench(TOLD), held), Held(Bench(TOLD), free)]
    following = iter(workers)

    def let_go():
        # The free worker has ended all the work that may be ahead before the other one ends its first piece.
        if len(workers[1].given_work) >= AHEAD * 2 - 1:
            held.set()

    with crew(lambda: next(following), check=let_go) as hired:
        assert list(hired.each(works(12))) == [number * number for number in range(12)]
    assert workers[0].given_work


def test_work_is_formed_only_a_little_ahead_of_the_results_that_are_taken():
    formed = []

    def counted():
        for number in range(50):
            formed.append(number)
            yield partial(square, number)

    with hired_by(Cluster()) as hired:
        results = hired.each(counted())
        next(results)
        assert len(formed) <= 1 + AHEAD * 2


def test_work_of_a_lost_worker_is_done_once_more_by_another_one():
    cluster = Cluster(2, None)
    with hired_by(cluster) as hired:
        assert list(hired.each(works(6))) == [0, 1, 4, 9, 16, 25]
    lost = cluster.workers[0].given_work[-1]
    assert sum(worker.given_work.count(lost) for worker in cluster.workers) == 2
    assert len(cluster.workers) == 3


def test_work_that_is_lost_a_second_time_ends_the_round_with_a_sentence():
    cluster = Cluster(1, 1, 1, 1)
    with hired_by(cluster) as hired, pytest.raises(ServiceError) as refused:
        list(hired.each(works(6)))
    assert str(refused.value) == LOST_TWICE
    assert all(worker.dismissed.is_set() for worker in cluster.workers)


def test_cancelling_ends_every_worker_whatever_it_does():
    looked = []

    def check():
        looked.append(True)
        if len(looked) > 3:
            raise JobCancelled

    workers = []

    def hire():
        workers.append(Held(Bench(TOLD), Event()))
        return workers[-1]

    with pytest.raises(JobCancelled), crew(hire, check=check) as hired:
        list(hired.each(works(6)))
    assert [worker.dismissed.is_set() for worker in workers] == [True, True]


def test_crew_goes_on_after_a_round_that_ended_early():
    with hired_by(Cluster()) as hired:
        with pytest.raises(InvalidInputError, match="0 cannot be used"):
            list(hired.each(works(6, refuse)))
        assert list(hired.each(works(3))) == [0, 1, 4]


def test_worker_with_another_program_is_refused():
    with (
        crew(lambda: FakeWorker(Bench(TOLD), program="another"), program="this") as hired,
        pytest.raises(ServiceError, match="another version of this program"),
    ):
        list(hired.each(works(2)))


def test_workers_that_cannot_begin_are_told_of():
    class Stillborn(FakeWorker):
        def greeted(self):
            raise WorkerLost("no module named app")

    with crew(lambda: Stillborn(Bench(TOLD))) as hired, pytest.raises(ServiceError, match="no module named app"):
        list(hired.each(works(2)))


def test_workers_that_do_not_begin_in_time_are_told_of():
    class Pending(FakeWorker):
        def greeted(self):
            self.dismissed.wait()
            raise WorkerLost("killed")

    moments = iter(range(0, 10_000, 200))
    with (
        crew(lambda: Pending(Bench(TOLD)), clock=lambda: next(moments)) as hired,
        pytest.raises(ServiceError, match="none began within 300 seconds"),
    ):
        list(hired.each(works(2)))


# How work travels.


def there_and_back(work, loader=load_tiny):
    return unpacked(Bench(TOLD, loader=loader).done(packed(work)))


def facts(model, detector):
    return model.weights_digest, model.prompting, detector.version


def test_models_and_detectors_travel_by_name_and_arrive_as_they_left():
    model = load_tiny("tiny").dated("2026-11-21")
    detector = SpanDetector(
        pipeline=None, masked_families=("race",), user_list=UserList("mine", (UserTerm("Zork", "gender"),))
    )
    data = packed(partial(facts, model, detector))
    assert len(data) < 3000
    assert unpacked(Bench(TOLD, loader=load_tiny).done(data)) == facts(model, detector)


def test_worker_with_other_weights_is_refused():
    model = replace(load_tiny("tiny"), weights_digest="sha256:0")
    with pytest.raises(ServiceError, match="the weights differ"):
        there_and_back(partial(facts, model, None))


def test_errors_arrive_as_they_left_or_in_their_own_words():
    with pytest.raises(InvalidInputError, match="7 cannot be used"):
        there_and_back(partial(refuse, 7))
    with pytest.raises((CalibrationMismatch, ServiceError), match="weights"):
        there_and_back(mismatch)


def test_work_that_exists_in_one_process_alone_is_refused():
    with pytest.raises(ServiceError, match="cannot be given to workers"):
        packed(lambda: 1)


def test_workers_are_not_told_where_the_store_is_or_what_is_secret():
    told = worker_settings(Settings(database_url="sqlite:///x", oidc_client_secret="hidden", ray_address="auto"))
    assert not {"database_url", "oidc_client_secret", "ray_address", "signing_key"} & set(told)
    assert told["kv_memory_mb"] == Settings().kv_memory_mb
