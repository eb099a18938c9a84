"""The owner of models: loads once, forgets the oldest, and blocks nobody who uses another model."""

import threading

import pytest

from app.shared.memory import Turns
from app.shared.model_host import ModelHost
from tests.conftest import the_tiny_model


def test_a_model_is_loaded_once_and_the_one_unused_for_longest_goes_first():
    loads = []

    def load(name, **_):
        loads.append(name)
        return the_tiny_model()

    host = ModelHost(capacity=2, loader=load)
    for name in ("a", "b", "a", "c", "a", "b"):
        host.get(name)
    assert loads == ["a", "b", "c", "b"]


def test_a_slow_load_does_not_hold_up_a_model_that_is_there():
    started, release = threading.Event(), threading.Event()

    def load(name, **_):
        if name == "slow":
            started.set()
            assert release.wait(60)
        return the_tiny_model()

    host = ModelHost(loader=load)
    host.get("quick")
    thread = threading.Thread(target=host.get, args=("slow",))
    thread.start()
    assert started.wait(60)
    assert host.get("quick") is host.get("quick")
    release.set()
    thread.join(60)
    assert not thread.is_alive()


def test_two_who_ask_for_the_same_model_at_once_load_it_once():
    loads = []

    def load(name, **_):
        loads.append(name)
        return the_tiny_model()

    host = ModelHost(loader=load)
    threads = [threading.Thread(target=host.get, args=("same",)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert loads == ["same"]


def test_long_work_gives_way_to_those_who_wait_and_goes_on_after_them():
    host, order = ModelHost(loader=lambda name, **_: the_tiny_model()), []

    def ask(name):
        with host.turn():
            order.append(name)

    with host.turn():
        host.give_way()
        threads = []
        for name in ("first", "second"):
            threads.append(threading.Thread(target=ask, args=(name,)))
            threads[-1].start()
            # One waits before the next asks, so that their order is known.
            while len(host._turns._queue) < 1 + len(threads):
                threading.Event().wait(0.001)
        order.append("batch 1")
        host.give_way()
        order.append("batch 2")
        host.give_way()
    for thread in threads:
        thread.join(60)
    assert order == ["batch 1", "first", "second", "batch 2"]


def test_a_wait_that_is_interrupted_leaves_the_turn_to_others(monkeypatch):
    turns = Turns()

    def interrupt(*_):
        raise KeyboardInterrupt

    with turns.turn():
        with monkeypatch.context() as patch:
            patch.setattr(turns._changed, "wait_for", interrupt)
            with pytest.raises(KeyboardInterrupt), turns.turn():
                pass
        assert len(turns._queue) == 1
    with turns.turn():
        assert len(turns._queue) == 1
    assert len(turns._queue) == 0
