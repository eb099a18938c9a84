"""The worlds of a run: the prompt as typed, masked, and with its attribute exchanged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from app.paths.types import LONGEST, MOST_PATHS, PathsRequest, World
from app.shared.audits import AuditSettings
from app.shared.errors import ServiceError
from coft_core.text.agreement import PRONOUN_SETS, find_pronouns, is_pronoun
from coft_core.text.merging import validate_spans
from coft_core.text.rewording import swap_text
from coft_core.text.vocabulary import lexicon_words
from coft_core.types import Span

AS_TYPED, MASKED = "as typed", "masked"
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
    worlds = [_plain(request, spans)] if request.as_typed else []
    worlds += [_masked(request, spans)] if request.masked else []
    worlds += [_pronouns(request, spans, name) for name in request.pronouns]
    worlds += [_group(request, spans, group) for group in request.groups]
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


def _plain(request: PathsRequest, spans: Sequence[Span]) -> World:
    return World(AS_TYPED, AS_TYPED, request.prompt, tuple(spans), request.settings)


def _masked(request: PathsRequest, spans: Sequence[Span]) -> World:
    if not any(span.masked for span in spans):
        raise ServiceError("Nothing of the prompt is masked, so there is no masked world; mark a word or leave it out.")
    return World(MASKED, MASKED, request.prompt, tuple(spans), masked_settings(request.settings))


def _pronouns(request: PathsRequest, spans: Sequence[Span], name: str) -> World:
    wanted = next((known for known in PRONOUN_SETS if known == name), None)
    if wanted is None:
        raise ServiceError(f"There are no pronouns {name!r}; choose some of {', '.join(PRONOUN_SETS)}.")
    targets = [span for span in spans if span.masked]
    if not any(item.meets(span) for item in find_pronouns(request.prompt) for span in targets):
        raise ServiceError("No masked word of the prompt is a pronoun, so none is exchanged; choose groups instead.")
    swapped = swap_text(request.prompt, spans, wanted=wanted, targets=targets)
    return World(name, name, swapped.text, swapped.spans, request.settings, swapped.notes)


def _group(request: PathsRequest, spans: Sequence[Span], group: str) -> World:
    name = " ".join(group.split())
    if not name:
        raise ServiceError("A group is empty; write a word, or leave it out.")
    pronouns = find_pronouns(request.prompt)
    replaced = [span for span in spans if span.masked and not is_pronoun(span, pronouns)]
    families = sorted({span.category for span in replaced})
    if not families:
        raise ServiceError("No masked word names a group, so none can be exchanged; choose pronouns instead.")
    if len(families) > 1:
        raise ServiceError(
            f"Words of {' and '.join(families)} are masked, and a group takes the place of one; unmark the others."
        )
    new = {span: lexicon_words().inflected(name, like=request.prompt[span.start : span.end]) for span in replaced}
    swapped = swap_text(request.prompt, spans, new)
    return World(f"group {name}", name, swapped.text, swapped.spans, request.settings, swapped.notes)
