"""What the checks of a file cannot tell, file by file and field by field.

A bundle carries its own digests, so whoever changes one can also write all of them anew. Checks recompute; what follows
from nothing else in the file, and from nothing that the model computes, is listed here and in every verification.
"""

from __future__ import annotations

from collections.abc import Iterator

from app.report.bundle import ANNOTATIONS, CALIBRATION, MANIFEST, REPORT, STEPS
from app.report.bundle import LOGITS_FILE as LOGITS
from app.report.bundle import PROMPTS_FILE as PROMPTS
from app.report.verify.findings import Check, Untold
from app.report.verify.loaded import Loaded
from app.report.verify.replay import CALIBRATION_CHECK, LOGITS_CHECK, REPLAY_CHECK
from coft_core.fingerprint import WHOLE, shortest_digest

PAGE = "report.html"


def _of_report(*rows: tuple[str, str]) -> tuple[Untold, ...]:
    """From rows of a reason and the fields of the report that it holds for."""
    return tuple(Untold(REPORT, tuple(fields.split()), reason) for reason, fields in rows)


_ALWAYS = (
    *_of_report(
        ("Which program wrote it: nothing that was computed depends on that.",
         "program.name program.version"),
        ("The numbers under which the store keeps session, calibration, word list and branches: only that they fit "
         "each other.",
         "session.id session.calibration_id session.policy_settings.settings.calibration_id "
         "session.policy_settings.settings.user_list_id session.active_branch_id branches.id branches.parent_id"),
        ("What people called the session, its branches and its calibration.",
         "session.name branches.name session.calibration_label thresholds.calibration"),
        ("When it all happened: only that nothing is older than what it needs.",
         "session.created_at session.updated_at branches.created_at branches.steps.created_at log.at"),
        ("Who found a span, how surely, and which family it was taken for where one mask covers all families.",
         "session.spans.detail session.spans.score session.spans.source session.spans.category"),
        ("Whether the spans are all that is sensitive in the prompt: a person decides that. Suggested and kept "
         "spans that mask nothing can be left out or added.",
         "session.spans session.prompt"),
        ("Warnings and reasons that stood on the page: their wording belongs to the program.",
         "session.warnings session.policy_settings.preview.warnings session.policy_settings.preview.sentinel"),
        ("How steps were computed on the auditor's machine: only the number type is compared.",
         "session.policy_settings.computed.steps session.policy_settings.computed.quantization "
         "session.policy_settings.computed.memory session.policy_settings.computed.numeric_noise "
         "session.policy_settings.computed"),
        ("Settings that nothing came of: a limit of steps that no chain reached, leave that was not needed, and "
         "why a chain stands still that could go on.",
         "session.max_new_tokens session.policy_settings.settings.max_new_tokens "
         "session.policy_settings.settings.proceed_uncertified branches.finished"),
        ("What reviewers said, where an entry and all digests after it were written anew, or the newest ones "
         "removed: compare its head (log_head) with an earlier report.",
         "log log.reviewer log.note log.verdict log.tag log.kind log.blind log.branch log.first_step log.last_step"),
        ("Whether later audits still look like the calibration: that depends on other sessions.",
         "drift"),
        ("Whether whole branches were left out, or steps at the end of a chain that others do not depart from.",
         "branches"),
    ),
    Untold(STEPS, ("drift",), "The same as in report.json."),
    Untold(ANNOTATIONS, ("all columns",), "The same as of the log in report.json."),
    Untold(PAGE, ("all of it",),
           "The page for people is no part of a bundle: compare its digests with manifest.json, or export it again."),
)  # fmt: skip
_WITHOUT_REPLAY = _of_report(
    ("That the probabilities are those of the named model, and the candidates its likeliest: only a replay shows "
     "that (--replay).",
     "branches.steps branches.steps.log_p_factual branches.steps.log_p_masked branches.steps.log_p_fused "
     "branches.steps.candidates.log_p_factual branches.steps.candidates.log_p_masked "
     "branches.steps.candidates.log_p_fused branches.steps.candidates"),
    ("That texts of tokens are what the tokenizer makes of their ids: only that each id has one text everywhere.",
     "branches.steps.token branches.steps.policy_token branches.steps.candidates.token"),
    ("That tokens have the ids of the model's vocabulary.",
     "branches.steps.token_id branches.steps.policy_token_id branches.steps.candidates.token_id"),
    ("Which tokens the prompt and its masked reading have: that needs the model's tokenizer.",
     "session.prompt session.policy_settings.preview session.policy_settings.preview.token_count "
     "session.policy_settings.preview.branches session.rendering.texts"),
    ("Whether the model is the one that is named.",
     "session.model session.model_revision session.policy_settings.settings.model "
     "session.policy_settings.model_label session.fingerprint session.fingerprint.weights "
     "session.fingerprint.tokenizer session.fingerprint.dtype session.fingerprint.chat_template"),
    ("The draws of the sampled tokens, and what else the method did: they need the whole distribution.",
     "session.seed session.policy_settings.settings.seed session.temperature session.top_p session.top_k "
     "session.policy branches.finished"),
    ("Why a session without calibration is uncertified.",
     "session.certificate"),
)  # fmt: skip
_WITHOUT_VOCABULARY = _of_report(
    ("At which steps the set is too large for its threshold to say anything: the session was stored without the size "
     "of the vocabulary.",
     "branches.steps.state branches.steps.certified"),
)  # fmt: skip
_WITHOUT_LOGITS = _of_report(
    ("Size and mass of the certified set beyond the candidates listed, entropies, divergences and total variation: "
     "without all logits they are only checked against what the candidates imply.",
     "branches.steps.set_size branches.steps.certified_mass branches.steps.entropy_factual "
     "branches.steps.entropy_masked branches.steps.entropy_fused branches.steps.kl_fused_masked "
     "branches.steps.kl_fused_factual branches.steps.tv_fused_factual branches.steps.tv_on_set "
     "branches.steps.tv_bound"),
    ("How many tokens the vocabulary has, where no set comes to another side of the rule for sets that say nothing.",
     "session.policy_settings.vocabulary"),
    ("The sensitivity in logits: candidates keep probabilities, which leave the logits' offset open.",
     "branches.steps.sensitivity"),
)  # fmt: skip


def untold(loaded: Loaded, checks: list[Check]) -> tuple[Untold, ...]:
    """What no check of these can tell."""
    carried_out = {check.name for check in checks if check.status != "skipped"}
    unknown = any(check.status == "unknown" for check in checks)
    gaps = [*([_signed(loaded)] if unknown else []), *_ALWAYS, *_of_calibration(loaded, carried_out)]
    gaps += _shortened(loaded)
    if loaded.vocabulary is None:
        gaps += _WITHOUT_VOCABULARY
    if REPLAY_CHECK not in carried_out:
        gaps += _WITHOUT_REPLAY
        if LOGITS_CHECK in carried_out:
            gaps.append(Untold(LOGITS, ("all files",), "That the stored logits are the model's: a replay shows that."))
        else:
            gaps += _WITHOUT_LOGITS
    return tuple(gaps)


def _signed(loaded: Loaded) -> Untold:
    who = "Who made the bundle: it is not signed"
    if loaded.manifest is not None and loaded.manifest.get("signatures"):
        who = "Who made the bundle: anybody can sign with a key of their own. Give the auditor's with --key"
    file = REPORT if loaded.manifest is None else MANIFEST
    return Untold(file, ("signatures",), f"{who}. Compare its SHA-256 with the one that the auditor published.")


def _of_calibration(loaded: Loaded, carried_out: set[str]) -> Iterator[Untold]:
    session = loaded.report.session
    if not session.calibration_label:
        return
    if loaded.lacks_calibration:
        yield Untold(
            CALIBRATION,
            ("all of it",),
            "The calibration is not with the report, so that its thresholds are believed as they stand.",
        )
    elif CALIBRATION_CHECK in carried_out:
        yield Untold(CALIBRATION, ("name", "created"), "What the calibration is called and when it was made.")
        yield Untold(
            PROMPTS,
            ("rows", "request", "prompt_set", "user_list"),
            "Whether these prompts are like those that are audited, and where they come from: the calibration follows "
            "from them, whatever they are.",
        )
    else:
        yield Untold(
            CALIBRATION,
            ("values", "chosen", "chains", "contexts", "seed", "name", "created", "fingerprint"),
            "That its values are those of the model on its prompts: thresholds are read off them as they stand. A "
            "bundle that was exported with the calibration's prompts is calibrated again by a replay.",
        )
        yield Untold(
            CALIBRATION,
            ("verification",),
            "That coverage was verified on contexts of its own: the verification values can be replaced by the values "
            "that the thresholds come from, which those thresholds cover almost by construction.",
        )
        yield Untold(
            REPORT,
            ("thresholds.families.bins.log_tau", "branches.steps.log_tau", "branches.steps.certified",
             "session.fingerprint.detector", "session.fingerprint.estimator", "session.fingerprint.source"),
            "Thresholds and what follows from them, where the calibration's values were changed with them.",
        )  # fmt: skip
        if loaded.files is not None and PROMPTS in loaded.files:
            yield Untold(PROMPTS, ("all of it",), "Its prompts: nothing was calibrated again.")


def _shortened(loaded: Loaded) -> Iterator[Untold]:
    session = loaded.report.session
    texts = {f"session.fingerprint.{name}": str(value) for name, value in session.fingerprint.items()}
    texts["session.fingerprint_digest"] = session.fingerprint_digest
    digits = {
        name: shortest for name, text in texts.items() if (shortest := shortest_digest(text)) not in (None, WHOLE)
    }
    if digits:
        least = min(filter(None, digits.values()))
        yield Untold(
            REPORT,
            tuple(digits),
            f"These digests are shortened, down to {least} of {WHOLE} digits, as earlier versions wrote them: "
            "something else with the same beginning can be made with effort.",
        )
