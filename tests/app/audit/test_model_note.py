"""The note under the model: what is being done while it loads, where it runs, or why it does not."""

from app.audit.panel import LOADING_PHASES, SettingsHandlers
from app.audit.service import AuditService
from coft_core.errors import ModelLoadError
from coft_core.model.loading import LoadingPhase


def test_the_note_goes_through_all_phases_to_where_the_model_runs(wired, monkeypatch):
    monkeypatch.setattr(wired[AuditService], "loading", lambda name: iter(LoadingPhase))
    notes = list(SettingsHandlers(wired).describe_model("demo"))
    assert [phase for phase in LoadingPhase if LOADING_PHASES[phase] in " ".join(notes)] == list(LoadingPhase)
    assert all("Loading the model" in note for note in notes[:-1])
    assert "Ready on this computer" in notes[-1]
    assert "float32" in notes[-1]


def test_a_model_that_fails_while_it_loads_is_explained_in_the_note_and_in_a_message(wired, monkeypatch):
    shown = []
    monkeypatch.setattr("app.shared.events.gr.Warning", lambda text, **_: shown.append(text))

    def fails(name):
        yield LoadingPhase.TOKENIZER
        raise ModelLoadError("'<big>' does not fit into the memory here; try 4bit.")

    monkeypatch.setattr(wired[AuditService], "loading", fails)
    *_, last = SettingsHandlers(wired).describe_model("<big>")
    assert last == (
        '<p class="hint">Not loaded. &#39;&lt;big&gt;&#39; does not fit into the memory here; try 4bit.</p>'
    )
    assert shown == ["'&lt;big&gt;' does not fit into the memory here; try 4bit."]
