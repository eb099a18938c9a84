"""The page of models: which are known, and what is known of them before and after one is loaded."""

import shutil
from dataclasses import replace

from app.audit.service import AuditService
from app.bootstrap import services
from app.hosting.model_host import ModelHost
from app.models.service import ModelShelf
from app.shared.audits import AuditSettings, StartAudit
from coft_core.assets import assets_path
from tests.conftest import load_tiny


def named(name, **_):
    return replace(load_tiny(name), name=name)


def test_known_models_are_those_of_the_settings_and_those_that_were_used_and_none_is_loaded_to_list_them(
    settings, tmp_path
):
    folder = tmp_path / "mine"
    shutil.copytree(assets_path("models", "demo"), folder / "a")
    (folder / "b").mkdir()
    listed = settings.model_copy(update={"models": f"tiny,{folder},org/,demo"})
    with services(listed, loader=named) as wired:
        shelf, host = wired[ModelShelf], wired[ModelHost]
        found = {known.name: known for known in shelf.list().models}
        assert list(found) == ["demo", "tiny", str(folder / "a")]
        assert (found["demo"].source, found["tiny"].source) == ("embedded", "COFT_MODELS")
        assert found["demo"].context_length == found[str(folder / "a")].context_length == 512
        assert found["demo"].stored_bytes == found[str(folder / "a")].stored_bytes > 10**6
        assert [known.memory_bytes for known in found.values()] == [None] * 3
        audit = wired[AuditService].start(StartAudit("he said", AuditSettings(model="tiny", max_new_tokens=4)))
        list(wired[AuditService].run(audit.session_id))
        tiny = next(known for known in shelf.list().models if known.name == "tiny")
        model = host.loaded("tiny")
        assert (tiny.parameters, tiny.context_length) == (model.parameter_count, model.context_length)
        assert tiny.memory_bytes == sum(part.nbytes for part in model.module.parameters())
        # The first step reads the prompt, and is left out.
        assert tiny.steps == 3
        assert 0 < tiny.step_seconds < 60
    with services(settings.model_copy(update={"models": "demo"}), loader=named) as wired:
        assert [known.name for known in wired[ModelShelf].list().models] == ["demo"], "others are not offered any more"
    with services(settings, loader=named) as wired:
        known = {known.name: known.source for known in wired[ModelShelf].list().models}
        assert known["tiny"] == "used here"
