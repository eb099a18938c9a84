"""Checks of how a session hangs together: its branches, its prompt and settings, and its verdict log."""

from __future__ import annotations

from app.services.errors import CoftError, ServiceError
from app.services.known_policies import policy_info
from app.services.mapping import preview_from_json
from app.services.policy_choice import policy_of
from app.services.reporting.document import log_records
from app.services.reporting.schema import BranchPart, SessionPart, StepPart
from app.services.reporting.verify.findings import Findings, failed
from app.services.reporting.verify.loaded import Loaded
from app.services.verdict.wholeness import check_log
from app.services.views import AuditSettings
from app.services.views.verification import Check
from coft_core.decode import fork_path
from coft_core.digests import same_digests
from coft_core.fingerprint import Fingerprint
from coft_core.masking.placing import LOST
from coft_core.masking.rendering import Rendering, moment_of
from coft_core.policies.baseline import BaselinePolicy
from coft_core.policies.single_branch import SingleBranchPolicy

BRANCHES = "Branches and steps"


def check_branches(loaded: Loaded) -> Check:
    """Branches form a tree, their steps follow each other, and only forks force tokens.

    What passes here can be put together to chains, which all later checks need.
    """
    report = loaded.report
    found = Findings(BRANCHES)
    seen: dict[int, BranchPart] = {}
    lengths: dict[int, int] = {}
    found.expect(bool(report.branches), "The report has no branch.")
    for branch in report.branches:
        place = f"Branch {branch.path}"
        parent = None if branch.parent_id is None else seen.get(branch.parent_id)
        rooted = (branch.parent_id is None) == (not seen) and (branch.parent_id is None) == (branch.fork_step is None)
        found.expect(rooted, f"{place}: only the first branch is a root, and every other one departs from a parent.")
        found.expect(branch.id not in seen, f"{place}: its number {branch.id} is used twice.")
        if branch.parent_id is not None and not found.expect(parent is not None, f"{place}: its parent is missing."):
            continue
        first = branch.fork_step or 0
        if parent is not None:
            found.expect(0 <= first <= lengths[parent.id], f"{place}: it departs where its parent has no step.")
            _check_fork(found, branch, parent, first)
        indices = [step.index for step in branch.steps]
        found.same(place, "the order of its steps", indices, list(range(first, first + len(indices))))
        for step in branch.steps:
            _check_step(found, branch, step, first)
        seen[branch.id], lengths[branch.id] = branch, first + len(indices)
        limit = report.session.max_new_tokens
        found.expect(lengths[branch.id] <= limit, f"{place}: it has more steps than the {limit} that were allowed.")
        if branch.finished == "length":
            found.same(place, "the length at which it ended", lengths[branch.id], limit)
    found.expect(report.session.active_branch_id in seen, "The session's active branch is missing.")
    steps = sum(len(branch.steps) for branch in report.branches)
    return found.check(f"{len(report.branches)} branches, {steps:,} steps")


def check_prompt(loaded: Loaded) -> Check:
    """Spans lie in the prompt, the masked prompt has as many tokens, and settings and fingerprint agree."""
    session = loaded.report.session
    found = Findings("Prompt, spans and settings")
    for span in session.spans:
        inside = 0 <= span.start < span.end <= len(session.prompt)
        found.expect(inside, f"The span {span.start} to {span.end} ({span.category}) lies outside the prompt.")
    try:
        preview = preview_from_json(session.policy_settings["preview"])
        fingerprint = Fingerprint.from_dict(session.fingerprint)
    except (KeyError, TypeError, ValueError, AttributeError, CoftError) as error:
        return failed("Prompt, spans and settings", f"The session's settings are damaged ({error}).")
    masked = sum(piece.masked for piece in preview.pieces)
    found.same("Masked prompt", "the number of masked tokens", preview.masked_count, masked)
    found.expect(preview.masked_count <= preview.token_count, "Masked prompt: more tokens are masked than it has.")
    if not any(not (span.kept or span.suggested) for span in session.spans):
        found.same("Masked prompt", "the number of masked tokens without a masked span", preview.masked_count, 0)
    fits = same_digests(session.fingerprint_digest, fingerprint.digest)
    found.expect(
        fits, f"Fingerprint: its digest is stated as {session.fingerprint_digest!r} and is {fingerprint.digest!r}."
    )
    _check_rendering(found, session, fingerprint, preview.token_count)
    settings = loaded.settings
    try:
        method = _method(settings)
    except (CoftError, ServiceError) as error:
        return failed("Prompt, spans and settings", f"The session's policy cannot be built from its settings: {error}")
    fuses = policy_info(settings.policy).fuses
    used = {
        "model": (session.model, fingerprint.model),
        "model_revision": (session.model_revision, fingerprint.revision),
        "temperature": (session.temperature, fingerprint.temperature),
        "top_p": (session.top_p, fingerprint.top_p),
        "top_k": (session.top_k, fingerprint.top_k),
        "lam": (session.lam, fingerprint.lam if fuses else None),
        "policy": (session.policy, settings.policy),
        "seed": (session.seed, settings.seed),
        "greedy": (session.greedy, settings.greedy),
        "max_new_tokens": (session.max_new_tokens, settings.max_new_tokens),
        "setting temperature": (settings.temperature, fingerprint.temperature),
        "setting lam": (settings.lam if fuses else 0.0, fingerprint.lam),
        "method with its parameters": (method, fingerprint.method),
    }
    for name, (stated, other) in used.items():
        found.same("Settings", name, stated, other)
    return found.check(f"{len(session.spans)} spans, {preview.token_count} tokens, {len(used)} settings")


def _method(settings: AuditSettings) -> str:
    """The method with all its parameters, as a fingerprint holds it; COFT and vanilla decoding are named by the rest.

    Raises:
        ServiceError: There is no such policy.
        InvalidInputError: A parameter is unknown, or outside its range.
    """
    policy = policy_of(settings, None)
    if isinstance(policy, BaselinePolicy):
        return policy.label
    return policy.name if isinstance(policy, SingleBranchPolicy) else ""


def _check_rendering(found: Findings, session: SessionPart, fingerprint: Fingerprint, tokens: int) -> None:
    """What the model read is of this prompt, in the format that the fingerprint names."""
    if session.rendering is None:
        return
    place = "What the model read"
    try:
        rendering = Rendering.from_dict(session.rendering)
    except CoftError as error:
        found.expect(False, f"{place}: {error}")
        return
    kept = rendering.kept or {}
    found.same(place, "whether through a chat template", rendering.chat, fingerprint.chat_template != "none")
    dated = moment_of(fingerprint.rendering) is not None
    found.expect(rendering.moment is not None or not dated, f"{place}: the moment of its chat template is missing.")
    if found.expect(session.prompt in kept, f"{place}: it is not said for the session's prompt."):
        found.same(place, "the number of tokens", len(kept[session.prompt][0]), tokens)
    for text, (ids, offsets) in kept.items():
        inside = all((start, end) == LOST or 0 <= start <= end <= len(text) for start, end in offsets)
        found.expect(len(ids) == len(offsets) and inside, f"{place}: the places of its tokens lie outside the text.")


def check_verdicts(loaded: Loaded) -> Check:
    """Every entry of the verdict log follows from the one before, and points at what exists."""
    records = log_records(loaded.report)
    found = Findings("Verdict log")
    result = check_log(records)
    found.expect(result.whole, result.sentence)
    lengths = {branch.path: (branch.fork_step or 0) + len(branch.steps) for branch in loaded.report.branches}
    for record in records:
        if record.branch_path is None:
            continue
        place = f"Entry {record.entry}"
        if found.expect(record.branch_path in lengths, f"{place}: there is no branch {record.branch_path}."):
            last = record.last_step_index
            inside = last is None or last < lengths[record.branch_path]
            found.expect(inside, f"{place}: it is about steps that branch {record.branch_path} does not have.")
    return found.check("empty" if not records else f"{len(records)} entries, chained by SHA-256")


def _check_fork(found: Findings, branch: BranchPart, parent: BranchPart, first: int) -> None:
    """A fork's path names its parent, the step and the token; that step says what the parent's chain wrote there."""
    place = f"Branch {branch.path}"
    if not branch.steps:
        return
    forced = branch.steps[0]
    found.same(place, "its path", branch.path, fork_path(parent.path, first, forced.token_id))
    found.expect(forced.forced, f"{place}: its first token is not marked as forced by the reviewer.")
    beside = next((step for step in parent.steps if step.index == first), None)
    if beside is not None:
        found.same(f"{place}, step {first + 1}", "the token left alone", forced.policy_token_id, beside.policy_token_id)


def _check_step(found: Findings, branch: BranchPart, step: StepPart, first: int) -> None:
    place = f"Branch {branch.path}, step {step.index + 1}"
    if step.index != first or branch.fork_step is None:
        found.expect(not step.forced, f"{place}: it is marked as forced, and no branch departs there.")
    if not step.forced:
        found.same(place, "the emitted token", step.token_id, step.policy_token_id)
    rows = {row.token_id: row for row in step.candidates}
    found.expect(len(rows) == len(step.candidates), f"{place}: a candidate is listed twice.")
    for token_id, token, what in (
        (step.token_id, step.token, "the emitted token"),
        (step.policy_token_id, step.policy_token, "the policy's token"),
    ):
        row = rows.get(token_id)
        if found.expect(row is not None, f"{place}: {what} {token!r} is not among its candidates."):
            found.same(place, f"the text of {what}", token, None if row is None else row.token)
