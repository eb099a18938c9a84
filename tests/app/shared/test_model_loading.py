"""What is told while a model is loaded, and where it is said to run."""

import threading

import pytest

from app.settings import Settings
from app.shared.model_host import ModelHost
from coft_core.errors import ModelLoadError
from coft_core.model.loading import LoadingPhase
from tests.conftest import the_tiny_model


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
