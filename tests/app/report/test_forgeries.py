"""Consistent forgeries: each is caught, or the verification names its file and field among what it cannot tell."""

import functools
import itertools
import json
from dataclasses import replace
from datetime import datetime, timedelta

import numpy as np
import pytest

from app.report.bundle import CALIBRATION, REPORT
from app.report.bundle import PROMPTS_FILE as PROMPTS
from app.report.service import ReportService
from app.report.verify.replay import check_calibration, check_replay
from app.report.verify.run import untold
from app.shared.errors import ServiceError
from app.shared.thresholds import reading_for
from coft_core.conformal.calibration import Calibration
from coft_core.errors import CoftError, ModelLoadError
from tests.app.report.conftest import audit, check_named, failures, files_of, judge
from tests.app.report.forging import Forgery, fields_of, rebuilt
from tests.conftest import load_tiny, verifier

BRANCHES, TOKENS, REPLAY = "Branches and steps", "Certified tokens", "Replay on the model"
SETTINGS, PREVIEW, TIMES = "Prompt, spans and settings", "Masked prompt", "Times"
NUMBERS, SETS, FUSION = "Margins, ratios and bounds", "Choices and divergences", "Fusion of the candidates"
THRESHOLDS, CERTIFICATE, LOG = "Thresholds by step", "Calibration and certificate", "Verdict log"
RANGES = "Set sizes within numeric noise"
AGAIN, DIGESTS = "Calibration from its prompts", "Digests in the report"


def step_of(report, index=3):
    return report["branches"][0]["steps"][index]


def put(*path):
    """Sets the value at a path of keys and numbers; a function is asked what to make of the value there."""

    def change(report, _):
        place = report
        for key in path[:-2]:
            place = place[key]
        value = path[-1]
        place[path[-2]] = value(place[path[-2]]) if callable(value) else value

    return change


def in_step(name, value):
    return put("branches", 0, "steps", 3, name, value)


def every(*changes):
    def change(report, files):
        for one in changes:
            one(report, files)

    return change


def setting(name, value, *elsewhere):
    """Changes a setting wherever it stands: in the settings, in the session and in the fingerprint."""
    places = {"session": ("session",), "fingerprint": ("session", "fingerprint")}
    changes = [put("session", "policy_settings", "settings", name, value)]
    return every(*changes, *(put(*places[where], name, value) for where in elsewhere))


def retold(report, _):
    """Another text for one token id, wherever it stands."""
    token_id = step_of(report)["token_id"]
    for branch in report["branches"]:
        for step in branch["steps"]:
            for name in ("token", "policy_token"):
                if step[f"{name}_id"] == token_id:
                    step[name] = " kind"
            for row in step["candidates"]:
                if row["token_id"] == token_id:
                    row["token"] = " kind"


def made_up(report, _):
    """All numbers of one step moved together, so that they fit each other."""
    step = step_of(report)
    least = min(row["log_p_fused"] for row in step["candidates"])
    for row in step["candidates"]:
        if row["log_p_fused"] == least and row["token_id"] not in (step["token_id"], step["policy_token_id"]):
            for view in ("factual", "masked", "fused"):
                row[f"log_p_{view}"] -= 0.02


def shifted(report, files):
    """Values of the calibration moved by so little that no token changes sides, thresholds of the steps with them."""
    own = Calibration.from_bytes(files[CALIBRATION])
    values = own.joint.values
    moved = np.minimum(values.values - np.float32(5e-3) * (np.abs(values.values) < 60), 0).astype(np.float32)
    files[CALIBRATION] = own.each(lambda part: replace(part, values=replace(values, values=moved))).to_bytes()


def with_steps_of(change):
    """A changed calibration with all that its thresholds decide at every step."""

    def whole(report, files):
        change(report, files)
        calibration = Calibration.from_bytes(files[CALIBRATION]).read(alpha=report["session"]["alpha"])
        for branch in report["branches"]:
            for step in branch["steps"]:
                log_tau = calibration.threshold(step["index"])
                step["log_tau"], step["margin"] = log_tau, min(step["log_p_fused"], step["log_p_masked"]) - log_tau
                step["tv_bound"] = float(np.sqrt(step["kl_fused_masked"] / 2) / np.exp(log_tau))

    return whole


def verified_on_its_own(_, files):
    own = Calibration.from_bytes(files[CALIBRATION])
    files[CALIBRATION] = own.each(lambda part: replace(part, verification=part.values)).to_bytes()


def other_prompt(_, files):
    content = json.loads(files[PROMPTS])
    content["rows"][0]["reference"] = "and nothing else"
    files[PROMPTS] = json.dumps(content).encode()


def later(days):
    return lambda text: (datetime.fromisoformat(text) + timedelta(days=days)).isoformat()


def everything_later(report, _):
    """All times moved together; only the calibration stays where it was."""
    move = later(1)
    for name in ("created_at", "updated_at"):
        report["session"][name] = move(report["session"][name])
    for branch in report["branches"]:
        branch["created_at"] = move(branch["created_at"])
        for step in branch["steps"]:
            step["created_at"] = move(step["created_at"])
    for entry in report["log"]:
        entry["at"] = move(entry["at"])


def made_later(report, files):
    own = Calibration.from_bytes(files[CALIBRATION])
    files[CALIBRATION] = replace(own, created=later(1)(own.created)).to_bytes()


def recalled(report, files):
    own = Calibration.from_bytes(files[CALIBRATION])
    files[CALIBRATION] = replace(own, name="other").to_bytes()
    report["session"]["calibration_label"] = report["thresholds"]["calibration"] = "other"


def masked_word(report, _):
    """A word that no span marks is shown as masked, and counted so."""
    preview = report["session"]["policy_settings"]["preview"]
    head, sentinel = preview["pieces"][0], report["session"]["fingerprint"]["sentinel"].strip()
    preview["pieces"][:1] = [[head[0][:1], False], *[[sentinel, True]] * (len(head[0]) - 1)]
    preview["masked_count"] += len(head[0]) - 1


def shown_word(report, _):
    """A masked word is shown as it was typed."""
    session = report["session"]
    preview = session["policy_settings"]["preview"]
    span = next(span for span in session["spans"] if not span["kept"])
    word = session["prompt"][span["start"] : span["end"]]
    first = next(index for index, piece in enumerate(preview["pieces"]) if piece[1])
    last = first
    while preview["pieces"][last][1]:
        last += 1
    preview["pieces"][first:last] = [[word, False]]
    preview["masked_count"] -= last - first


def all_shown(report, _):
    """Every masked word is shown as it was typed."""
    preview = report["session"]["policy_settings"]["preview"]
    preview["pieces"], preview["masked_count"] = [[report["session"]["prompt"], False]], 0


def reworded(report, _):
    """One letter of the prompt, outside of all spans, wherever the prompt is said."""
    session = report["session"]
    session["rendering"] = json.loads(json.dumps(session["rendering"]).replace("come", "came"))
    session["prompt"] = session["prompt"].replace("come", "came")
    for piece in session["policy_settings"]["preview"]["pieces"]:
        piece[0] = piece[0].replace("come", "came")


def retagged(report, files):
    """A row of the candidates is exchanged for a token that was never among the likeliest."""
    step = step_of(report)
    texts = {
        row["token_id"]: row["token"]
        for branch in report["branches"]
        for one in branch["steps"]
        for row in one["candidates"]
    }
    taken = (step["token_id"], step["policy_token_id"])
    row = next(r for r in reversed(step["candidates"]) if r["token_id"] not in taken)
    row["token_id"] = next(number for number in range(250) if number not in texts)
    row["token"] = "~"


def dropped(report, files):
    step = step_of(report)
    taken = (step["token_id"], step["policy_token_id"])
    row = next(r for r in reversed(step["candidates"]) if r["token_id"] not in taken)
    step["candidates"].remove(row)


def chosen_otherwise(report, _):
    """Another certified token as the drawn one, with all its numbers."""
    step = report["branches"][0]["steps"][-1]
    row = next(r for r in step["candidates"] if r["certified"] and r["token_id"] != step["token_id"])
    for name in ("token_id", "token", "log_p_factual", "log_p_masked", "log_p_fused"):
        step[name] = row[name]
    step["certified"] = step["state"] in ("calibrated", "inherited")
    step["policy_token_id"], step["policy_token"] = row["token_id"], row["token"]
    step["margin"] = min(row["log_p_fused"], row["log_p_masked"]) - step["log_tau"]
    step["log_ratio"] = row["log_p_factual"] - row["log_p_masked"]


def recomputed(report, files):
    report["session"]["policy_settings"]["computed"][0]["steps"] = "by hand"


def branch_left_out(report, _):
    gone = report["branches"].pop()
    report["session"]["active_branch_id"] = report["branches"][0]["id"]
    report["log"] = [entry for entry in report["log"] if entry["branch"] != gone["path"]]
    report["controls"] = [part for part in report["controls"] if part["branch"] != gone["path"]]


FORGERIES: dict[str, Forgery] = {
    # Tokens
    "a token's text beside its id": Forgery(in_step("token", " kind"), BRANCHES),
    "a token's text beside its id, everywhere": Forgery(retold, REPLAY, True, REPORT, "branches.steps.token"),
    "a candidate exchanged for another token": Forgery(
        retagged, REPLAY, True, REPORT, "branches.steps.candidates.token_id"
    ),
    "a candidate left out": Forgery(dropped, REPLAY, True, REPORT, "branches.steps.candidates"),
    "the drawn token with all its numbers": Forgery(chosen_otherwise, REPLAY, True, REPORT, "branches.steps.token_id"),
    "a forced flag": Forgery(in_step("forced", True), BRANCHES),
    "the emitted token": Forgery(in_step("token_id", lambda number: number + 1), BRANCHES),
    "the policy's token": Forgery(in_step("policy_token_id", lambda number: number + 1), BRANCHES),
    # Numbers
    "numbers that fit each other": Forgery(made_up, REPLAY, True, REPORT, "branches.steps.candidates.log_p_fused"),
    "a threshold of the list": Forgery(
        put("thresholds", "families", 0, "bins", 0, "log_tau", lambda own: own - 0.01), THRESHOLDS
    ),
    "a set that is larger, with its range": Forgery(
        every(*(in_step(name, lambda own: own + 1) for name in ("set_size", "set_size_low", "set_size_high"))), REPLAY,
        True, REPORT, "branches.steps.set_size"
    ),
    "a larger entropy": Forgery(
        in_step("entropy_fused", lambda own: own + 0.1), REPLAY, True, REPORT, "branches.steps.entropy_fused"
    ),
    "a larger divergence": Forgery(
        every(
            in_step("kl_fused_masked", lambda own: own * 4),
            in_step("tv_bound", lambda own: None if own is None else own * 2),
        ),
        REPLAY, True, REPORT, "branches.steps.kl_fused_masked"
    ),
    "the sensitivity": Forgery(
        in_step("sensitivity", lambda own: own + 1), REPLAY, True, REPORT, "branches.steps.sensitivity"
    ),
    "total variation on the set": Forgery(
        in_step("tv_on_set", lambda own: None if own is None else own / 2), REPLAY, True, REPORT,
        "branches.steps.tv_on_set"
    ),
    "what a family says": Forgery(
        put("branches", 0, "steps", 3, "families", 0, "log_joint", lambda own: own - 0.1), TOKENS, kind="factorized"
    ),
    # The calibration
    "values of the calibration, with every threshold, and coverage verified on them": Forgery(
        every(with_steps_of(shifted), verified_on_its_own), AGAIN, True, CALIBRATION, "values|verification",
        rewrites=True, kind="with prompts"
    ),
    "a prompt of the calibration": Forgery(other_prompt, AGAIN, True, PROMPTS, "all of it", kind="with prompts"),
    "a calibration made after the audit": Forgery(made_later, TIMES, rewrites=True),
    "the risk level": Forgery(setting("alpha", 0.2, "session"), THRESHOLDS),
    "the certificate": Forgery(put("session", "certificate", "uncertified: no calibration"), CERTIFICATE),
    "why there is no certificate": Forgery(
        put("session", "certificate", "uncertified: vanilla decoding"), REPLAY, True, REPORT, "session.certificate",
        kind="uncalibrated"
    ),
    # Prompt, spans and masks
    "a word shown as masked": Forgery(masked_word, PREVIEW),
    "a masked word shown": Forgery(shown_word, PREVIEW),
    "all masked words shown": Forgery(all_shown, PREVIEW),
    "a word of the masked prompt": Forgery(
        put("session", "policy_settings", "preview", "pieces", -1, 0, lambda text: text.replace("come", "go")), PREVIEW
    ),
    "a word of the prompt and of its masked reading": Forgery(reworded, REPLAY, True, REPORT, "session.prompt"),
    "a word of the prompt alone": Forgery(put("session", "prompt", lambda text: text.replace("come", "came")), PREVIEW),
    "the number of the prompt's tokens": Forgery(
        put("session", "policy_settings", "preview", "token_count", lambda own: own + 1), SETTINGS
    ),
    "a span moved": Forgery(put("session", "spans", 2, "end", lambda own: own + 6), PREVIEW),
    "a span said to be kept": Forgery(put("session", "spans", 0, "kept", True), PREVIEW),
    "a span said to be suggested": Forgery(put("session", "spans", 0, "suggested", True), PREVIEW),
    "a label of no family": Forgery(put("session", "spans", 0, "category", "zodiac"), SETTINGS),
    "a score that is no share": Forgery(put("session", "spans", 0, "score", 2.0), SETTINGS),
    "the sentinel": Forgery(put("session", "fingerprint", "sentinel", "#"), PREVIEW),
    # Settings and model
    "the seed": Forgery(setting("seed", 9, "session"), REPLAY, True, REPORT, "session.seed"),
    "the seed in one place": Forgery(setting("seed", 9), SETTINGS),
    "a setting of another type": Forgery(setting("seed", False), SETTINGS),
    "the mask layout": Forgery(setting("mask_layout", "factorized"), SETTINGS),
    "a whitelist": Forgery(setting("whitelist", ["nurse"]), SETTINGS),
    "the families that are masked": Forgery(setting("masked_families", ["gender"]), SETTINGS),
    "the temperature everywhere": Forgery(setting("temperature", 0.7, "session", "fingerprint"), CERTIFICATE),
    "the weights in the fingerprint": Forgery(
        put("session", "fingerprint", "weights", "sha256:" + "0" * 64), CERTIFICATE
    ),
    "the weights, where nothing is certified": Forgery(
        put("session", "fingerprint", "weights", "sha256:" + "0" * 64), REPLAY, True, REPORT,
        "session.fingerprint.weights", kind="uncalibrated"
    ),
    "the model's name": Forgery(
        every(setting("model", "other", "session"), put("session", "fingerprint", "model", "other")), REPLAY, True,
        REPORT, "session.model", kind="uncalibrated"
    ),
    "the model's revision": Forgery(
        every(put("session", "model_revision", "v2"), put("session", "fingerprint", "revision", "v2")), REPLAY, True,
        REPORT, "session.model_revision", kind="uncalibrated"
    ),
    "the word list's name": Forgery(put("session", "policy_settings", "user_list", "other"), SETTINGS),
    "a word list's number": Forgery(setting("user_list_id", 3), SETTINGS),
    "the place of a token": Forgery(
        put("session", "rendering", "texts", 0, "offsets", -1, 1, lambda end: end + 1), SETTINGS
    ),
    "the chat template": Forgery(
        put("session", "fingerprint", "chat_template", "0" * 64), SETTINGS, kind="uncalibrated"
    ),
    "the method": Forgery(setting("policy", "vanilla", "session"), SETTINGS),
    "the number type of the computation": Forgery(
        put("session", "policy_settings", "computed", 0, "dtype", "bfloat16"), SETTINGS
    ),
    # Times
    "a step before its session": Forgery(in_step("created_at", later(-1)), TIMES),
    "a session changed last before it began": Forgery(put("session", "updated_at", later(-1)), TIMES),
    "a branch before its session": Forgery(put("branches", 1, "created_at", later(-1)), TIMES),
    "a branch before what it departs from": Forgery(put("branches", 0, "steps", 1, "created_at", later(1)), TIMES),
    "a verdict before its step": Forgery(put("log", 0, "at", later(-1)), TIMES),
    "a review finished before it began": Forgery(put("log", 1, "kind", "review_finished"), LOG),
    # Branches and the verdict log
    "a branch's path": Forgery(put("branches", 1, "path", "0/2:1"), BRANCHES),
    "a branch left out": Forgery(branch_left_out, file=REPORT, field="branches"),
    "why a branch ended": Forgery(put("branches", 0, "finished", "end"), REPLAY, True, REPORT, "branches.finished"),
    "whether a verdict was blind": Forgery(put("log", 2, "blind", False), LOG),
    "the last verdict left out": Forgery(lambda report, _: report["log"].pop(), file=REPORT, field="log"),
    # Names and the rest
    "a status that there is not": Forgery(put("session", "status", "approved"), SETTINGS),
}  # fmt: skip


TOLD = (
    (recalled, CALIBRATION, "name"), (put("session", "spans", 0, "category", "race"), REPORT, "session.spans.category"),
    (recomputed, REPORT, "session.policy_settings.computed.steps"), (everything_later, REPORT, "session.created_at"),
    (put("branches", 1, "name", "other"), REPORT, "branches.name"),
    (put("log", 0, "verdict", "fair"), REPORT, "log.verdict"), (put("log", 0, "note", "other"), REPORT, "log.note"),
    (put("log", 4, "reviewer", "other"), REPORT, "log.reviewer"),
    (put("session", "name", "other"), REPORT, "session.name"), (put("session", "id", 999), REPORT, "session.id"),
    (put("session", "warnings", ["other"]), REPORT, "session.warnings"), (put("drift", "fresh"), REPORT, "drift"),
    (put("program", "version", "9.9"), REPORT, "program.version"),
)  # fmt: skip
"""What is changed that nothing in a bundle can contradict, with the file and the field that a verification names."""


def in_candidate(name, by):
    return lambda step: step["candidates"][1].update({name: step["candidates"][1][name] + by})


def moved(name, by):
    return lambda step: step.update({name: step[name] + by})


def turned(name):
    return lambda step: step.update({name: not step[name]})


def resorted(step):
    step["candidates"][:2] = reversed(step["candidates"][:2])


AT_STEPS = (
    (resorted, SETS), (in_candidate("log_p_fused", 0.01), FUSION), (in_candidate("log_p_factual", -0.05), FUSION),
    (in_candidate("log_p_masked", 0.05), FUSION), (moved("log_p_masked", 0.01), TOKENS),
    (lambda step: step.update(tv_bound=0.001), NUMBERS), (lambda step: step.update(kl_fused_masked=0.0), SETS),
    (lambda step: step.update(tv_fused_factual=0.0), SETS), (lambda step: step.update(tv_fused_factual=0.999), SETS),
    (lambda step: step.update(entropy_masked=0.0), SETS), (turned("certified"), TOKENS),
    (moved("log_tau", -0.01), THRESHOLDS), (lambda step: step.update(state="inherited"), THRESHOLDS),
    (moved("set_size", 1), RANGES), (lambda step: step.update(certified_mass=0.0), TOKENS),
    (moved("margin", 0.5), NUMBERS), (lambda step: step.update(log_ratio=0.0), NUMBERS), (turned("fallback"), TOKENS),
)  # fmt: skip
"""What is changed at one step, with the check that names the place."""


def load_named(name, **named):
    if name != "tiny":
        raise ModelLoadError(f"There is no model {name}.")
    return load_tiny(name, **named)


@pytest.fixture(scope="module", autouse=True)
def calibrations_read_once():
    """Most forgeries leave the calibration and how it is read as they are: that gives the same objects each time."""
    read = {}

    def reading(stored, settings):
        key = (id(stored), repr(settings))
        if key not in read:
            read[key] = reading_for(stored, settings)
        return read[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Calibration, "from_bytes", functools.cache(Calibration.from_bytes))
        patch.setattr("app.report.verify.loaded.reading_for", reading)
        yield


@pytest.fixture(scope="module")
def strict(audited):
    """A verifier on a machine that knows the audited model alone."""
    return verifier(audited.settings, loader=load_named)


@pytest.fixture(scope="module")
def exported(audited):
    """Bundles; a replay of one with the prompts of its calibration calibrates again."""
    bundle = audited.wired[ReportService].bundle
    plain = {kind: bundle(audited.sessions[kind]) for kind in ("joint", "factorized", "uncalibrated")}
    return {**plain, "with prompts": bundle(audited.sessions["joint"], True)}


@pytest.fixture
def found(strict, tmp_path):
    def one(bundle, replay):
        path = tmp_path / "evidence.zip"
        path.write_bytes(bundle)
        return strict.examined(path, replay)

    return one


def named(beyond, file, field):
    """Whether a verification says that it cannot tell a field, or what it belongs to."""
    return any(
        item.file == file and any(field == own or field.startswith(f"{own}.") for own in item.fields) for item in beyond
    )


@pytest.mark.parametrize("what", FORGERIES)
def test_a_consistent_forgery_is_caught_or_named_among_what_cannot_be_told(what, exported, found, tmp_path):
    forgery = FORGERIES[what]
    bundle = rebuilt(exported[forgery.kind], forgery.change, tmp_path, forgery.rewrites)
    assert bundle != exported[forgery.kind]
    loaded, verification = found(bundle, forgery.replay)
    assert check_named(verification, "Files of the bundle").status == "passed"
    if forgery.caught and not forgery.replay:
        assert forgery.caught in failures(verification), failures(verification)
        return
    # Without a replay, the two checks that need the model are skipped.
    *checks, _, _ = verification.checks
    assert [check for check in checks if check.status == "failed"] == []
    without = [*checks, check_replay(loaded, None), check_calibration(loaded, None, list)]
    for field in forgery.field.split("|"):
        assert named(untold(loaded, without), forgery.file, field)
    if forgery.caught:
        assert forgery.caught in failures(verification), failures(verification)
        for field in forgery.field.split("|") if forgery.file == CALIBRATION else ():
            assert any(field in problem for problem in failures(verification)[forgery.caught])
    else:
        replayed = found(bundle, True)[1]
        assert failures(replayed) == {}
        assert named(replayed.beyond, forgery.file, forgery.field)


@pytest.mark.parametrize("first", range(0, len(AT_STEPS), 6))
def test_a_number_that_is_forged_at_a_step_is_caught_there(first, exported, found, tmp_path):
    placed = dict(enumerate(AT_STEPS[first : first + 6], start=1))

    def change(report, _):
        for index, (forge, _) in placed.items():
            forge(step_of(report, index))

    caught = failures(found(rebuilt(exported["joint"], change, tmp_path), False)[1])
    for index, (_, name) in placed.items():
        assert any(problem.startswith(f"Branch 0, step {index + 1}") for problem in caught[name]), (index, caught)


def test_what_nothing_contradicts_is_named_among_what_cannot_be_told(exported, found, tmp_path):
    bundle = rebuilt(exported["with prompts"], every(*(change for change, _, _ in TOLD)), tmp_path, rewrites=True)
    for replay in (False, True):
        verification = found(bundle, replay)[1]
        assert failures(verification) == {}
        for _, file, field in TOLD:
            assert named(verification.beyond, file, field), field


@pytest.mark.parametrize(
    ("kind", "alpha", "every"),
    [
        ("joint", 0.3, 12),
        pytest.param("joint", 0.3, 1, marks=pytest.mark.slow),
        pytest.param("factorized", 0.9, 1, marks=pytest.mark.slow),
    ],
)
def test_no_field_of_a_report_can_be_changed_without_being_caught_or_named(
    kind, alpha, every, audited, found, tmp_path
):
    wired = audited.wired
    number = audit(
        wired, "short", calibration_id=audited.calibrations[kind], mask_layout=kind, max_new_tokens=4, alpha=alpha
    )
    judge(wired, number, 1)
    # The forger has no key, and nobody asks for a signature: what only that would notice must be named.
    bundle = rebuilt(wired[ReportService].bundle(number), lambda report, files: None, tmp_path)
    unnoticed, seen = [], 0
    for path, change in itertools.islice(fields_of(json.loads(files_of(bundle)[REPORT])), 0, None, every):
        try:
            forged = rebuilt(bundle, lambda report, _, change=change: change(report), tmp_path)
            seen += 1
            without = found(forged, False)[1]
        except (ServiceError, CoftError, ValueError, KeyError):
            # Nobody can read it any more.
            continue
        if forged == bundle or not without.ok:
            continue
        replayed = found(forged, True)[1]
        told = without if not replayed.ok else replayed
        if not named(told.beyond, REPORT, path):
            unnoticed.append((path, "by a replay alone" if not replayed.ok else "by nothing"))
    assert unnoticed == [], "\n" + "\n".join(map(str, unnoticed))
    assert seen > 80 / every
