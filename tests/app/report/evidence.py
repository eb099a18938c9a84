"""Bundles of many kinds, and forgeries of them: what verifiers must agree on."""

import base64
import csv
import hashlib
import io
import json
import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from app.audit.service import AuditService
from app.calibrate.service import CalibrationService
from app.jobs.service import JobService
from app.report.bundle import CALIBRATION, MANIFEST, REPORT, pack
from app.report.decided import DECISIONS, decided_bundle
from app.report.document import canonical, digest_of
from app.report.service import ReportService
from app.report.signing import signed_content
from app.report.verify import alone
from app.shared.audits import AuditSettings, CalibrationRequest, StartAudit
from app.shared.decisions import DecidedRun, Decision, DecisionRule
from app.shared.errors import ServiceError
from app.shared.wiring import Services
from coft_core.controls.measure import ended
from coft_core.errors import CoftError
from coft_core.types import Span
from tests.app.report.conftest import files_of, judge
from tests.app.report.forging import rebuilt

PROMPTS = (
    (
        "=The old nurse said he would come",
        (Span(5, 8, "age"), Span(9, 14, "family", kept=True), Span(20, 22, "gender")),
    ),
    ("+Mary, née O’Brien, wrote:\t“so”", (Span(1, 5, "gender"), Span(11, 18, "nationality"))),
    ("he and she", (Span(0, 2, "gender"), Span(7, 10, "gender"))),
)
CALIBRATIONS = (
    {},
    {"estimator": "pooled", "bin_spacing": "even", "bin_width": 3},
    {"estimator": "one_per_context"},
    {"bin_spacing": "widening", "bin_width": 4},
    {"mask_layout": "factorized"},
    {"mask_layout": "factorized", "bin_spacing": "widening", "lam": 0.3},
    {"rho": 1.5, "lam": 0.9},
    {"by_group": True, "bin_spacing": "even"},
)


def rows(grouped: bool) -> str:
    """Calibration prompts, with groups or without."""
    named = [f"He said number {i} to the nurse,and she wrote {i} down,{i // 2},{'ab'[i // 2 % 2]}" for i in range(48)]
    return "\n".join(["prompt,reference,context,group", *named] if grouped else ["prompt,reference,context", *(
        row.rsplit(",", 1)[0] for row in named)]) + "\n"  # fmt: skip


def calibrated(wired: Services, folder: Path) -> list[tuple[int, CalibrationRequest]]:
    """A calibration of each kind; its number and its settings."""
    made = []
    for changes in CALIBRATIONS:
        path = folder / "set.csv"
        path.write_text(rows("by_group" in changes))
        request = replace(CalibrationRequest(name="set", model="tiny", top_p=1.0, alpha=0.3), **changes)
        job = wired[JobService].wait(wired[CalibrationService].submit(wired[CalibrationService].parse(path), request))
        assert job.status == "done", job.error
        made.append((int(job.result["calibration_id"]), request))
    return made


def generated(wired: Services, calibrations: Sequence[tuple[int, CalibrationRequest]], number: int) -> bytes:
    """The bundle of a session whose settings are drawn by its number."""
    draw = random.Random(number)
    calibration, request = draw.choice(calibrations)
    prompt, spans = draw.choice(PROMPTS)
    used = draw.random() < 0.8
    settings = AuditSettings(
        model="tiny",
        policy="coft" if used else draw.choice(("coft", "vanilla", "coft-no-fusion", "detox")),
        mask_layout=request.mask_layout if used else "joint",
        calibration_id=calibration if used else None,
        lam=request.lam if used and draw.random() < 0.8 else round(draw.random(), 2),
        alpha=draw.choice((0.3, 0.1, 0.05, 0.37, 0.6, 0.9, 0.001)),
        group=draw.choice(("a", "b", None)) if used and request.by_group else None,
        top_p=1.0,
        temperature=request.temperature,
        greedy=draw.random() < 0.3,
        seed=draw.randrange(10**6),
        max_new_tokens=draw.randint(1, 12),
        proceed_uncertified=True,
    )
    try:
        session = wired[AuditService].start(StartAudit(prompt, settings, spans, f"“{number}”")).session_id
    except (ServiceError, CoftError):
        # A group with too few contexts for the level has no thresholds.
        return generated(wired, calibrations, number + 10**6)
    list(wired[AuditService].run(session))
    view = wired[AuditService].view(session)
    if len(view.steps) > 2 and draw.random() < 0.5:
        step = draw.randrange(len(view.steps))
        other = next(row for row in view.steps[step].candidates if row.token_id != view.steps[step].token_id)
        fork = wired[AuditService].fork(session, view.branch_id, step, other.token_id)
        list(wired[AuditService].run(session, fork.branch_id))
    if draw.random() < 0.3:
        ended(wired[AuditService].comparing(session))
    if len(view.steps) > 5 and draw.random() < 0.4:
        judge(wired, session)
    return wired[ReportService].bundle(session)


@dataclass(frozen=True)
class Forged:
    """A change of a bundle, and whether no model is needed to catch it."""

    name: str
    change: Callable[..., object]
    caught: bool = True


def _steps(report: dict) -> Iterator[dict]:
    return (step for branch in report["branches"] for step in branch["steps"])


def _first(report: dict, files: dict) -> dict:
    return next(_steps(report))


def _row(report: dict, files: dict) -> dict:
    step = _first(report, files)
    # Far from the threshold, so that no tolerance covers it.
    return max(step["candidates"], key=lambda row: abs(min(float(row["log_p_fused"]), float(row["log_p_masked"]))))


def turned(place: Callable[..., dict], name: str) -> Callable[..., object]:
    return lambda report, files: place(report, files).update({name: not place(report, files)[name]})


def moved(place: Callable[..., dict], name: str, by: float) -> Callable[..., object]:
    """An infinity becomes a number."""

    def change(report: dict, files: dict) -> None:
        row = place(report, files)
        row[name] = -3.0 if isinstance(row[name], str) else row[name] + by

    return change


def _bin(report: dict, files: dict) -> dict:
    return report["thresholds"]["families"][0]["bins"][0]


def _family(report: dict, files: dict) -> dict:
    return report["controls"][0]["controls"]["families"][0]


def _p_value(report: dict, files: dict) -> None:
    values = _family(report, files)["p_values"]
    values[0] = 0.01 if values[0] > 0.5 else 1.0


def last_place(text: str) -> str:
    """The nearest other number."""
    return repr(math.nextafter(float(text), -1.0))


REPORTS = (
    Forged("a threshold of the list", moved(_bin, "log_tau", -0.5)),
    Forged("a threshold of a step", moved(_first, "log_tau", -0.25)),
    Forged("what a threshold rests on", lambda r, _: _first(r, _).update(state="inherited")),
    Forged("a token moved in or out of a set", turned(_row, "certified")),
    Forged("whether the written token is certified", turned(_first, "certified")),
    Forged("a fallback", turned(_first, "fallback")),
    Forged("the mass of a set", lambda r, _: _first(r, _).update(certified_mass=-0.5)),
    Forged("an empty set", lambda r, _: _first(r, _).update(set_size=-1)),
    Forged("the probability of the written token", moved(_first, "log_p_factual", 1e-6)),
    Forged("a p-value", _p_value),
    Forged("the number of contexts", moved(_bin, "contexts", 1)),
    Forged("an effect too small to see", moved(_first, "sensitivity", 1e-3), caught=False),
    Forged("a note's author", lambda r, _: r["session"].update(name="another name"), caught=False),
)
"""Changes of the report from which everything else is written again, as if the program had found them."""


def _cell(column: str, change: Callable[[str], str], name: str = "steps.csv") -> Callable[..., object]:
    def one(files: dict) -> None:
        table = list(csv.reader(io.StringIO(files[name].decode(), newline="")))
        place = table[0].index(column)
        row = next(row for row in table[1:] if row[place])
        row[place] = change(row[place])
        text = io.StringIO()
        csv.writer(text, lineterminator="\r\n").writerows(table)
        files[name] = text.getvalue().encode()

    return one


def _lines(change: Callable[[list], object], name: str = "candidates.csv") -> Callable[..., object]:
    def one(files: dict) -> None:
        lines = files[name].split(b"\r\n")
        change(lines)
        files[name] = b"\r\n".join(lines)

    return one


def _exchange(lines: list) -> None:
    lines[1], lines[2] = lines[2], lines[1]


FILES = (
    Forged("a probability of a table", _cell("log_p_masked", last_place, "candidates.csv")),
    Forged("a probability of steps", _cell("certified_mass", last_place)),
    Forged("a verdict's digest", _cell("digest", lambda text: text[::-1], "annotations.csv")),
    Forged("a row deleted", _lines(lambda lines: lines.pop(1))),
    Forged("a row added", _lines(lambda lines: lines.insert(1, lines[1]))),
    Forged("rows exchanged", _lines(_exchange)),
    Forged("a table missing", lambda files: files.pop("steps.csv")),
    Forged("the calibration swapped", lambda files: files.update({CALIBRATION: files["steps.csv"]})),
    Forged("a digest of the manifest", lambda files: None),
)
"""Changes of files after which the manifest is written again."""


def manifest_again(files: dict[str, bytes], **changes: object) -> dict[str, bytes]:
    """The files with a manifest that fits them, unsigned."""
    stated = json.loads(files[MANIFEST])
    listed = {name: {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)} for name, data in files.items()}
    del listed[MANIFEST]
    stated |= {"files": listed, "signatures": [], **changes}
    return {
        MANIFEST: (canonical(stated, indent=1) + "\n").encode(),
        **{k: v for k, v in files.items() if k != MANIFEST},
    }


def decided(number: int, sign: Callable[..., object] = lambda manifest: {}) -> bytes:
    """The bundle of drawn decisions that were made elsewhere, unsigned unless told."""
    draw = random.Random(number)
    groups, paired = draw.sample(["a", "b", "ç", "=d"], draw.randint(2, 4)), draw.random() < 0.6
    rates = {group: draw.random() for group in groups}
    rows, line = [], 1
    for pair in range(draw.randint(1, 25)):
        for group in (*groups, None):
            line += 1
            chosen, known = draw.random() < rates.get(group, 0.5), draw.random() < 0.95
            told = ("yes" if chosen else "no") if known else "maybe"
            rows.append(Decision(line, group, told, chosen if known else None, str(pair) if paired else None))
    rule, made = DecisionRule("yes", "no", exclude_small=draw.random() < 0.5), datetime(2026, 1, 1, tzinfo=UTC)
    run = DecidedRun(number, f"“{number}”", "x.csv", "0" * 64, "CSV", made, {}, rule, (), tuple(rows))
    return decided_bundle(run, sign)


def _decided_row(run: dict) -> None:
    row = next(row for row in run["decisions"] if row["selected"] is not None and row["group"] is not None)
    row["selected"], row["outcome"] = (False, "no") if row["selected"] else (True, "yes")


DECIDED = (
    ("an impact ratio", lambda run: run["groups"][-1].update(ratio=0.5 if run["groups"][-1]["ratio"] != 0.5 else 0.25)),
    ("a rate", lambda run: run["groups"][0].update(rate=run["groups"][0]["rate"] + 1e-3)),
    ("a p-value of two groups", lambda run: run["tests"][0].update(p_value=run["tests"][0]["p_value"] / 2)),
    ("an outcome of a row", _decided_row),
    ("a row of decisions deleted", lambda run: run["decisions"].pop(0)),
    ("a group renamed", lambda run: run["groups"][0].update(group="other")),
)


def decided_forgeries(bundle: bytes) -> Iterator[tuple[str, bool, bytes]]:
    """Forgeries of decisions, whose manifest is written again."""
    files = files_of(bundle)
    for name, change in DECIDED:
        run = json.loads(files[DECISIONS])
        if not run["tests"]:
            continue
        change(run)
        digests = {"file": run["sha256"], "decisions": digest_of(run["decisions"])}
        drafted = {**files, DECISIONS: canonical(run, indent=1).encode()}
        yield name, True, pack(manifest_again(drafted, digests=digests))


def signed_by_another(files: dict[str, bytes]) -> dict[str, bytes]:
    """The files with a manifest that somebody else signed."""
    key, stated = Ed25519PrivateKey.from_private_bytes(bytes(32)), json.loads(files[MANIFEST])
    raw = key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    made = {"public_key": raw, "signature": key.sign(signed_content({**stated, "signatures": []}))}
    entry = {"algorithm": "ed25519", **{name: base64.b64encode(data).decode() for name, data in made.items()}}
    return {**files, MANIFEST: json.dumps({**stated, "signatures": [entry]}).encode()}


def forgeries(bundle: bytes, folder: Path) -> Iterator[tuple[str, bool, bytes]]:
    """Every forgery that this bundle allows: what was changed, whether no model is needed to catch it, the bundle."""
    files = files_of(bundle)
    report = json.loads(files[REPORT])
    used, steps = report["thresholds"], any(True for _ in _steps(report))
    # One unit in the last place of each kind of number, and nothing else.
    for name in (name for name, number in {**report["branches"][0]["steps"][0]}.items()
                 if isinstance(number, float) and math.isfinite(number) and number) if steps else ():  # fmt: skip
        own = f'"{name}": {report["branches"][0]["steps"][0][name]!r}'.encode()
        changed = f'"{name}": {last_place(repr(report["branches"][0]["steps"][0][name]))}'.encode()
        assert own in files[REPORT], own
        yield (
            f"last place of {name}",
            True,
            pack(manifest_again({**files, REPORT: files[REPORT].replace(own, changed, 1)})),
        )
    for one in FILES if steps else ():
        drafted = dict(files)
        if one.name == "a verdict's digest" and len(report["log"]) == 0:
            continue
        if one.name == "the calibration swapped" and (CALIBRATION not in files or used is None):
            continue
        one.change(drafted)
        digests = {**json.loads(files[MANIFEST])["digests"], "steps": "0" * 64}
        changes = {"digests": digests} if "manifest" in one.name else {}
        yield one.name, one.caught, pack(manifest_again(drafted, **changes))
    yield "a file changed, the manifest as it was", True, pack({**files, "steps.csv": files["steps.csv"] + b"x"})
    yield "a file more", True, pack({**files, "more.txt": b"x"})
    for one in REPORTS if steps else ():
        refuses = report["session"]["policy"] in alone.REFUSING
        drawn = report["session"]["fingerprint"]["estimator"] == "one_per_context"
        # Values that NumPy draws are drawn again by the program only.
        with_values = used is not None and CALIBRATION in files and not drawn
        needs = {
            "p-value": bool(report.get("controls")),
            "threshold of the list": with_values,
            "number of contexts": with_values,
            # Methods that refuse tokens by rules of their own have fallbacks and thresholds that no number tells.
            "threshold of a step": not refuses,
            "fallback": not refuses,
        }
        if all(holds for part, holds in needs.items() if part in one.name):
            yield one.name, one.caught, rebuilt(bundle, one.change, folder)
