"""The owner of models: loads each once, tells how far loading is, and blocks nobody who uses another model."""

import threading

import pytest

from app.hosting.memory import Turns
from app.hosting.model_host import ModelHost
from app.settings import Settings
from coft_core.errors import ModelLoadError
from coft_core.model.fake import tiny_model
from coft_core.model.loading import LoadingPhase, Needs
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


class SlowLoader:
    """Begins the next phase when it is told to."""

    def __init__(self, error=None):
        self.go, self.loads, self.error = threading.Semaphore(0), 0, error

    def __call__(self, name, progress, **_):
        self.loads += 1
        for phase in LoadingPhase:
            progress(phase)
            assert self.go.acquire(timeout=60)
        if self.error:
            raise self.error
        return the_tiny_model()


def test_every_phase_is_told_as_it_begins_and_nothing_once_the_model_is_there():
    loader = SlowLoader()
    host, told = ModelHost(loader=loader), []
    for phase in host.loading("m"):
        told.append(phase)
        loader.go.release()
    assert told == list(LoadingPhase)
    assert host.loaded("m") is host.get("m")
    assert list(host.loading("m")) == []


def test_a_failure_is_raised_to_whoever_watches_and_leaves_no_phase_behind():
    loader = SlowLoader(ModelLoadError("It does not fit."))
    host = ModelHost(loader=loader)
    watched = host.loading("m")
    next(watched)
    for _ in LoadingPhase:
        loader.go.release()
    with pytest.raises(ModelLoadError, match="does not fit"):
        list(watched)
    loader.error = None
    again = host.loading("m")
    assert next(again) is LoadingPhase.TOKENIZER
    for _ in LoadingPhase:
        loader.go.release()
    list(again)
    assert host.loaded("m") is not None


def test_what_a_model_needs_is_known_while_it_is_loaded_and_forgotten_afterwards():
    seen, needs = [], Needs(6 * 10**9, 131_072, 0.3)

    def load(name, progress, **_):
        for told in (LoadingPhase.TOKENIZER, needs, LoadingPhase.WEIGHTS):
            progress(told)
            seen.append(host.needs(name))
        return the_tiny_model()

    host = ModelHost(loader=load)
    list(host.loading("m"))
    assert seen == [None, needs, needs]
    assert host.needs("m") is None
    for said in ("6.0 GB", "0.26 MB", "0.3 seconds"):
        assert said in needs.text


def test_room_is_made_before_the_weights_of_a_model_are_read():
    held = []

    def load(name, progress, **_):
        progress(LoadingPhase.WEIGHTS)
        held.append({other for other in "abc" if host.loaded(other)})
        return the_tiny_model()

    host = ModelHost(capacity=1, loader=load)
    for name in "abc":
        host.get(name)
    assert held == [set(), set(), set()]


def test_a_name_that_leads_to_no_model_drives_out_nobody_else_s(tmp_path):
    (tmp_path / "config.json").write_text('{"architectures": ["BertForMaskedLM"], "model_type": "bert"}')
    host = ModelHost(device="cpu", capacity=1)
    before = host.get("demo")
    for name in ("/no/such/folder", "", str(tmp_path)):
        with pytest.raises(ModelLoadError):
            host.get(name)
        assert host.loaded("demo") is before


def test_what_the_settings_say_reaches_the_loader(monkeypatch):
    for name, value in {
        "DEVICE_MAP": "auto", "MAX_MEMORY": '{"0": "20GiB"}', "QUANTIZATION": "4bit", "PREFILL_TOKENS": "512",
        "TRUST_REMOTE_CODE": "somebody/model, /srv/other", "SNAPSHOTS_MB": "3",
    }.items():  # fmt: skip
        monkeypatch.setenv(f"COFT_{name}", value)
    given = {}

    def load(name, **options):
        given.update(options)
        return the_tiny_model()

    ModelHost(loader=load, options=Settings().placement).get("m")
    assert given.items() >= {
        "device_map": "auto", "max_memory": '{"0": "20GiB"}', "quantization": "4bit", "prefill_tokens": 512,
        "offload_folder": None, "trusted": ("somebody/model", "/srv/other"), "snapshot_bytes": 3 << 20,
    }.items()  # fmt: skip


def prepared(faster_steps):
    return ModelHost(loader=lambda name, **_: tiny_model(), faster_steps=faster_steps)


def test_steps_that_are_asked_for_are_prepared_as_the_last_phase_of_loading_and_told():
    own = prepared("on")
    assert list(own.loading("m"))[-1] is LoadingPhase.WARM_UP
    assert "Computes in float32, steps traced." in own.describe("m").details


def test_nothing_is_prepared_where_that_is_switched_off():
    assert "Computes in float32. " in prepared("off").describe("m").details
