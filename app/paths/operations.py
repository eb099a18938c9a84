"""Sampled paths: many continuations in several worlds, their tree, and one question about them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from app.audit.operations import DecodingOptions
from app.jobs.service import JobService, JobView
from app.paths.runs import view_json
from app.paths.sentences import (
    distance,
    first_parting,
    interval,
    percent,
    reservations,
    result_sentences,
    threshold_sentence,
    twins_sentence,
)
from app.paths.service import TABLES, PathsService
from app.paths.types import Analysis, OpenedPath, PathsRequest, PathsView, Question
from app.paths.worlds import shown_prompt
from app.shared.audits import AuditSettings
from app.shared.commands import Choices
from app.shared.errors import ServiceError
from app.shared.files import write_text
from app.shared.json import job_json
from app.shared.needs import READ, WORK
from app.shared.operations import Json, Read, checked, command, operation, record
from app.shared.settings_json import USUAL as USUAL_SETTINGS
from app.shared.settings_json import Settings, spans_from_json
from app.shared.terminal import POLICY_KEYS, spans_of, wait_for
from app.shared.wiring import Services

USUAL = PathsRequest("")
OWN = ("as_typed", "masked", "pronouns", "groups", "paths", "alpha", "stop_early", "name")
LENGTH = "tokens"
"""What programs say of a run beside its question."""
ASKED = ("yes", "no", "regex", "match_case", "scorer", "threshold", "called")
"""What programs say of a question."""


def sampling_from_json(given: Json | None) -> PathsRequest:
    """Worlds, numbers and question as a request that has no prompt yet.

    Raises:
        ServiceError: There is no option of that name, or one is of the wrong kind.
    """
    named = {name: value for name, value in (given or {}).items() if value is not None}
    if unknown := sorted(set(named) - {*OWN, *ASKED, LENGTH}):
        raise ServiceError(f"There is no option {unknown[0]!r}; the options are {', '.join((*OWN, LENGTH, *ASKED))}.")
    tokens = checked("The option tokens", int, named.pop(LENGTH, USUAL.settings.max_new_tokens))
    asked = {name: value for name, value in named.items() if name in ASKED}
    question = record(
        Question, {"name" if name == "called" else name: value for name, value in asked.items()}, what="option"
    )
    own = {name: value for name, value in named.items() if name in OWN}
    return record(PathsRequest, own, what="option", prompt="", question=question, settings=_of_length(tokens))


def _of_length(tokens: int) -> AuditSettings:
    return AuditSettings(max_new_tokens=tokens)


@dataclass(frozen=True, kw_only=True)
class PathsOptions(DecodingOptions):
    """Everything that describes the policy and the paths.

    Attributes:
        steps: tokens of a path at most
    """

    steps: int = USUAL.settings.max_new_tokens


def _names(text: str) -> tuple[str, ...]:
    return tuple(part for piece in text.split(",") if (part := piece.strip()))


def _found(wired: Services, run_id: int) -> Analysis:
    service = wired[PathsService]
    return service.analysis(service.view(run_id))


def _found_json(found: Analysis) -> dict[str, Any]:
    return {"result": result_sentences(found), "notes": reservations(found), **view_json(found)}


def _summary_json(view: PathsView) -> dict[str, Any]:
    return {
        "id": view.id,
        "name": view.name,
        "status": view.status,
        "created_at": view.created_at.isoformat(),
        "model": view.request.settings.model,
        "policy": view.request.settings.policy,
        "worlds": [item.world.label for item in view.worlds],
        "paths_drawn": view.drawn,
        "paths_asked": view.request.paths,
    }


def _follow(wired: Services, begun: JobView, quiet: bool) -> Analysis:
    """Wait for a run; one that ended early is shown as far as it came."""
    try:
        job = wait_for(wired, begun.id, quiet)
    except KeyboardInterrupt:
        wired[JobService].cancel(begun.id)
        job = wired[JobService].wait(begun.id)
    if job.status == "failed":
        raise ServiceError(job.error or "The run failed.")
    return _found(wired, job.id)


def _write(wired: Services, found: Analysis, folder: Path) -> str:
    """Write paths.csv, estimates.csv and partings.csv into this folder."""
    service, run_id = wired[PathsService], found.view.id
    paths = [write_text(folder / f"{table}.csv", service.csv(run_id, table)) for table in TABLES]
    return f"Tables: {', '.join(str(path) for path in paths)}"


def _print(found: Analysis) -> None:
    """The result in a sentence for each comparison, the worlds with their shares, and where they part."""
    view = found.view
    print(f"{view.name} (paths {view.id}), {view.request.settings.model}")
    for sentence in result_sentences(found):
        print(sentence)
    print()
    for number, item in enumerate(view.worlds):
        share = found.estimates[number] if found.estimates else None
        answered = f", {percent(share)} {interval(share)}, {share.unscored} unscored" if share else ""
        print(f"{item.world.label}: {len(item.paths)} paths{answered}; {threshold_sentence(item)}")
        print(f"   {shown_prompt(item.world)}")
    for apart in found.apart:
        parting = first_parting(found, apart)
        where = "no parting found" if parting is None else f"part with total variation {distance(parting)}"
        print(f"{found.labels[0]} and {found.labels[apart.world]}: {where}. {twins_sentence(apart)}".rstrip())
    for note in reservations(found):
        print(f"Note: {note}")


def _print_list(views: tuple[PathsView, ...]) -> None:
    for view in views:
        worlds = ", ".join(item.world.label for item in view.worlds)
        print(f"{view.id}: {view.name}; {view.drawn} of {view.request.paths} paths in each of {worlds}; {view.status}")
    if not views:
        print("No paths are sampled yet; see: python -m app paths --help")


@operation(need=WORK, json=job_json, answer="job")
def sample_paths(
    wired: Services,
    prompt: str,
    sampling: Annotated[PathsRequest, Read(sampling_from_json)] = USUAL,
    spans: list[Json] | None = None,
    settings: Settings = USUAL_SETTINGS,
) -> JobView:
    """Sample many continuations of a prompt in several worlds, without waiting for it.

    Args:
        prompt: The text that the model continues.
        sampling: All optional. Worlds: as_typed and masked (true unless said otherwise), pronouns (some of she, he,
            they) and groups (words), each a world of its own. Numbers: paths (of each world at most), tokens (of a
            path at most), alpha (risk that a difference is found where there is none), stop_early (end once every
            difference is decided). Question: yes and no (words separated by commas, or regular expressions with
            regex), match_case, called (what a yes is called), or scorer (a classifier) with threshold. And name.
        spans: Sensitive spans; without them the detector finds them.
        settings: Those of start_audit; tokens takes the place of max_new_tokens.

    Returns:
        The job: job_id, status, progress and message; ask job how far it is, and sampled_paths for what was drawn. Its
        job_id is that of the run.
    """
    settings = replace(settings, max_new_tokens=sampling.settings.max_new_tokens)
    request = replace(sampling, prompt=prompt, settings=settings, spans=spans_from_json(spans))
    return wired[JobService].get(wired[PathsService].submit(request))


@operation(need=READ, json=lambda views: [_summary_json(view) for view in views])
def list_paths(wired: Services) -> tuple[PathsView, ...]:
    """List runs of sampled paths that have ended.

    Returns:
        A list of runs, newest first: id, name, status, created_at, model, policy, worlds, paths_drawn and paths_asked.
    """
    return wired[PathsService].list()


@operation(need=READ, json=_found_json)
def sampled_paths(wired: Services, run_id: int) -> Analysis:
    """Show what a run of sampled paths has drawn.

    Args:
        run_id: The run, as list_paths or sample_paths names it.

    Returns:
        result (sentences), notes, worlds (each with its paths, their seeds, texts, tokens, thresholds and outcomes),
        estimates (share of yes with its exact 95 % interval), comparisons (difference of the first world from each
        other one with an interval that holds at all times, and decided_after, or null), partings (total variation of
        the next token behind each beginning with its bootstrap interval, its mean over exchanges and p-values), twins
        (how many paths of one draw part, and how many at each token), depths (the same as partings of whole
        beginnings), and tree (shares of each beginning by world).
    """
    return _found(wired, run_id)


@operation(
    need=WORK, json=lambda opened: {"session_id": opened.session_id, "same": opened.same, "tokens": opened.tokens}
)
def open_path(wired: Services, run_id: int, world: int, path: int) -> OpenedPath:
    """Draw one sampled path again as an audit session of its own.

    Args:
        run_id: The run.
        world: Number of the world in the run, from 1.
        path: Number of the path in its world, from 1.

    Returns:
        session_id, tokens (of the path) and same (how many of them the session drew alike, from the first on).
    """
    return wired[PathsService].open_path(run_id, world - 1, path - 1)


@command("paths", json=_found_json, wait=_follow, write=_write, text=_print)
def paths(
    wired: Services,
    *,
    prompt: str,
    paths: int = USUAL.paths,
    yes: str = "",
    no: str = "",
    regex: bool = False,
    match_case: bool = False,
    scorer: str = "",
    threshold: float = USUAL.question.threshold,
    called: str = "",
    pronouns: str = "",
    groups: str = "",
    without_typed: bool = False,
    without_masked: bool = False,
    risk: float = USUAL.alpha,
    all_paths: bool = False,
    name: str = "",
    spans: str | None = None,
    policy: Annotated[str, Choices(POLICY_KEYS), typer.Option("--policy", metavar="NAME")] = "coft",
    options: PathsOptions,
) -> JobView:
    """Sample many continuations as typed, masked and swapped, and say whether their answers differ.

    Args:
        prompt: the text to continue
        paths: paths of each world at most
        yes: words that make a path a yes, separated by commas
        no: words that make it a no; with them, a path with neither is not scored
        regex: yes and no are regular expressions
        match_case: letter case of yes and no matters
        scorer: a classifier decides instead: 'embedded' (toxicity), or a Hugging Face id or folder with '#label'
        threshold: probability of the classifier from which a path is a yes
        called: what a yes is called
        pronouns: pronouns that make a world each, e.g. she,he
        groups: groups that make a world each, separated by commas
        without_typed: do not sample the prompt as typed
        without_masked: do not sample the masked prompt
        risk: risk that a difference is found where there is none
        all_paths: draw all paths, also where the differences are decided earlier
        name: name of the run (default: the prompt's beginning)
        spans: JSON list of [start, end, category] in place of detected spans
        policy: decoding policy
    """
    request = PathsRequest(
        prompt=prompt,
        settings=_of_length(options.steps),
        as_typed=not without_typed,
        masked=not without_masked,
        pronouns=_names(pronouns),
        groups=_names(groups),
        paths=paths,
        question=Question(yes, no, regex, match_case, scorer, threshold, called),
        alpha=risk,
        stop_early=not all_paths,
        name=name,
    )
    (settings,) = options.decoding(wired, policy)
    return sample_paths.call(wired, prompt, request, spans_of(spans), settings)


@command(
    "trees",
    json=lambda found: [_summary_json(view) for view in found] if isinstance(found, tuple) else _found_json(found),
    text=lambda found: _print_list(found) if isinstance(found, tuple) else _print(found),
)
def trees(
    wired: Services, run_id: Annotated[int | None, typer.Argument(metavar="NUMBER")] = None
) -> Analysis | tuple[PathsView, ...]:
    """List sampled paths, or show one run.

    Args:
        run_id: number of a run
    """
    return wired[PathsService].list() if run_id is None else _found(wired, run_id)
