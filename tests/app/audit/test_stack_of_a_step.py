"""How far a step is from the page to the model: few functions, each of which does something."""

import inspect
from pathlib import Path
from types import SimpleNamespace

from app.audit.handlers import AuditHandlers
from app.audit.service import AuditService
from app.bootstrap import services
from app.shared.audits import AuditSettings, StartAudit
from coft_core.model.fake import scripted_model

ROOT = Path(__file__).resolve().parents[3]
FRAMES = 8


def frames_up_to(handler):
    """Names of the project's functions from the caller's caller outwards, up to the handler."""
    names = []
    for frame in inspect.stack(0)[2:]:
        if Path(frame.filename).is_relative_to(ROOT) and ".venv" not in frame.filename:
            names.append(frame.function)
        if frame.frame.f_code is handler:
            return names
    return []


def test_a_step_passes_at_most_eight_functions_from_the_handler_to_the_models_forward(settings):
    model = scripted_model({" a": 0.6, " b": 0.3}, {" a": 0.5, " b": 0.4}, (" x", " a", " b", "The", " he"))
    forward, handler, stacks = model.module.forward, inspect.unwrap(AuditHandlers.step).__code__, []

    def seen(*arguments, **named):
        stacks.append(frames_up_to(handler))
        return forward(*arguments, **named)

    model.module.forward = seen
    with services(settings, loader=lambda name, **_: model) as wired:
        view = wired[AuditService].start(StartAudit("The he a", AuditSettings(model="scripted", max_new_tokens=3)))
        event = SimpleNamespace(session=view.session_id, branch=view.branch_id, nonce=1)
        handlers = AuditHandlers(wired)
        for _ in range(2):
            handlers.step(event)
    _, second = (stack for stack in stacks if stack)
    assert second[-1] == "step"
    assert len(second) <= FRAMES, second
