"""The worlds of a run: the prompt as typed, masked, and with its attribute exchanged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from app.paths.types import LONGEST, MOST_PATHS, PathsRequest, World
from app.shared.audits import AuditSettings
from app.shared.errors import ServiceError
from app.shared.exchanges import AS_TYPED, group_spans, with_group, with_pronouns
from coft_core.text.merging import validate_spans
from coft_core.types import Span

MASKED = "masked"
MOST_WORLDS = 8


def check_request(request: PathsRequest) -> None:
    """Refuse what cannot be sampled."""
    if not request.prompt.strip():
        raise ServiceError("The prompt is empty; type the text that is continued.")
    if not 2 <= request.paths <= MOST_PATHS:
        raise ServiceError(f"{request.paths} paths cannot be drawn in each world; choose 2 to {MOST_PATHS}.")
    if not 1 <= request.settings.max_new_tokens <= LONGEST:
        raise ServiceError(
            f"Paths cannot have {request.settings.max_new_tokens} tokens; choose 1 to {LONGEST} steps at most."
        )
    if request.settings.greedy:
        raise ServiceError("The likeliest token is taken at every step, so all paths are the same; turn greedy off.")
    if not 0 < request.alpha < 1:
        raise ServiceError(f"The risk alpha is {request.alpha:g}; choose a number above 0 and below 1, such as 0.05.")


def worlds_of(request: PathsRequest, spans: Sequence[Span]) -> tuple[World, ...]:
    """The worlds that a request asks for; worlds of the same prompt under the same settings are one."""
    validate_spans(request.prompt, spans)
    targets, settings = [span for span in spans if span.masked], request.settings
    worlds = [World(AS_TYPED, AS_TYPED, request.prompt, tuple(spans), settings)] if request.as_typed else []
    if request.masked and not targets:
        raise ServiceError("Nothing of the prompt is masked, so there is no masked world; mark a word or leave it out.")
    if request.masked:
        worlds.append(World(MASKED, MASKED, request.prompt, tuple(spans), masked_settings(settings)))
    exchanged = [(name, with_pronouns(request.prompt, spans, targets, name)) for name in request.pronouns]
    replaced = group_spans(request.prompt, targets) if request.groups else []
    groups = [with_group(request.prompt, spans, (), replaced, name) for name in request.groups]
    exchanged += [(f"group {group.label}", group) for group in groups]
    worlds += [World(key, own.label, own.prompt, own.spans, settings, own.notes) for key, own in exchanged]
    by_text: dict[tuple[str, AuditSettings], World] = {}
    for world in worlds:
        first = by_text.setdefault((world.prompt, world.settings), world)
        if first is not world:
            by_text[world.prompt, world.settings] = replace(first, label=f"{first.label} ({world.label})")
    if not by_text:
        raise ServiceError("No world is chosen; sample the prompt as typed, masked, or with pronouns or groups.")
    if len(by_text) > MOST_WORLDS:
        raise ServiceError(f"There are {len(by_text)} worlds; sample at most {MOST_WORLDS} at once.")
    return tuple(by_text.values())


def masked_settings(settings: AuditSettings) -> AuditSettings:
    """The settings under which the masked prompt alone decides: fusion that counts nothing else, without thresholds."""
    return replace(
        settings, policy="coft", lam=1.0, calibration_id=None, group=None, mask_layout="joint", parameters=()
    )


def shown_prompt(world: World) -> str:
    """A world's prompt for reading: that of the masked world with its masked words taken out."""
    text = world.prompt
    if world.key == MASKED:
        for span in sorted((span for span in world.spans if span.masked), reverse=True):
            text = f"{text[: span.start]}[…]{text[span.end :]}"
    return text
