"""Checks an evidence bundle of COFT Audit with nothing but Python: python verify.py BUNDLE [--key KEY] [--unsigned].

0: nothing contradicts it. 1: something does. 2: it cannot be read. 3: it is not signed, and --unsigned is not given.
"""

import ast
import base64
import csv
import hashlib
import io
import json
import math
import struct
import sys
import zipfile
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any, TypeAlias

Row: TypeAlias = dict[str, Any]
Comparing: TypeAlias = Iterator[tuple[bool, str]]  # whether each comparison holds, and the problem if it does not
VIEWS = ("log_p_factual", "log_p_masked", "log_p_fused")
FACTUAL = ("coft-single-branch", "dtcd")  # methods that certify in the factual reading only
REFUSING = ("dtcd", "detox")  # methods that also refuse tokens for reasons that no stored number tells
EXACT, BOUNDARY, MASS = 1e-9, 1e-6, 1e-4  # tolerances of derived numbers, around thresholds, and of sums
LARGE, MANY, NEARLY_ALL = 0.05, 0.03, 0.99  # shares of the vocabulary and of the probability that say nothing
WEAKEST, WORST_FIRST = math.log(1e-5), ("none", "uninformative", "inherited", "calibrated")
PRIME, ORDER = 2**255 - 19, 2**252 + 27742317777372353535851937790883648493
CURVE = -121665 * pow(121666, -1, PRIME) % PRIME
OTHER_FORM = ("calibration_id", "certificate", "refused_by", "spans", "warnings", "note", "verdict", "first_step",
              "last_step")  # fmt: skip
BEYOND = """Left to the program's verify: fusion, margins, divergences, greedy choices, branches, the masked prompt,
the summary, whole texts, times, reviews, Holm's adjustment, e-values; and with --replay what the model computes."""


class SkippedError(Exception):
    """Why a check cannot be made from the bundle."""


def _same(place: str, what: str, stated: Any, computed: Any, tolerance: float = 0.0) -> tuple[bool, str]:
    low, high = computed if isinstance(computed, tuple) else (computed, computed)  # a tuple has bounds
    holds = low - tolerance <= stated <= high + tolerance if tolerance or low is not high else stated == computed
    return holds, f"{place}: {what} is stated as {stated!r:.80} and computed as {computed!r:.80}."


def _canonical(value: object, spaced: bool = False) -> bytes:
    return json.dumps(value, sort_keys=True, separators=None if spaced else (",", ":")).encode("ascii")


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _numeric(row: Row) -> Row:
    made = {key: [*map(_numeric, row[key])] for key in ("candidates", "families") if key in row}
    infinite = {key: float(v) for key, v in row.items() if v in ("Infinity", "-Infinity") and not key.endswith("token")}
    return row | infinite | made


def _steps_of(report: Row) -> Iterator[tuple[str, Row, Row]]:
    for branch in report["branches"]:
        for step in map(_numeric, branch["steps"]):
            yield f"Branch {branch['path']}, step {step['index'] + 1}", step, branch


def check_certified(report: Row) -> Comparing:
    """A candidate is certified exactly if its support reaches the threshold (Eq. 7); the set and choices fit that."""
    policy = report["session"]["policy_settings"]["settings"]["policy"]
    deciding = VIEWS[:1] if policy in FACTUAL else VIEWS[1:]
    for place, step, _ in _steps_of(report):
        log_tau, state, size, rows = step["log_tau"], step["state"], step["set_size"], step["candidates"]
        for row in rows:
            margin, allowed = min(row[view] for view in deciding) - log_tau, row["certified"]
            if step["families"]:
                allowed = allowed if state == "none" else not row["refused_by"]
            elif policy in REFUSING:  # it only has to keep to the threshold
                allowed = allowed and margin >= -BOUNDARY
            elif state == "none" or abs(margin) > BOUNDARY:
                known = not {f"log_p_{view}" for view in row.get("at_most", ())} & {*deciding}
                allowed = state != "none" and margin >= 0 and (known or margin == math.inf)
            yield _same(f"{place}, token {row['token']!r}", "whether it is certified", row["certified"], allowed)
        by_id, members = {row["token_id"]: row for row in rows}, [row for row in rows if row["certified"]]
        own, chosen = (by_id.get(step[name], {}) for name in ("token_id", "policy_token_id"))
        yield _same(place, "the numbers of its token", [step.get(v) for v in VIEWS], [own.get(v) for v in VIEWS])
        claims = own.get("certified", False) and state in ("calibrated", "inherited")
        yield _same(place, "whether its token is certified", step["certified"], claims)
        for part in step["families"]:
            joint, family = min(step["log_p_fused"], part["log_p_masked"]), f"{place}, family {part['family']}"
            yield _same(family, "the joint support", part["log_joint"], joint, EXACT)
            if part["state"] not in ("mismatch", "none") and abs(joint - part["log_tau"]) > BOUNDARY:
                yield _same(family, "whether it certifies", part["certified"], joint >= part["log_tau"])
        if state != "none" or policy not in REFUSING:  # refusing all tokens is a fallback too
            yield _same(place, "whether it is a fallback", step["fallback"], size == 0 and state != "none")
        mass = math.fsum(math.exp(row["log_p_fused"]) for row in members if "fused" not in row.get("at_most", ()))
        yield _same(place, "the set size", size, (len(members), math.inf))
        most = mass if len(members) == size else 1.0
        yield _same(place, "the certified mass", step["certified_mass"], (mass, most), MASS)
        yield not size or chosen.get("certified", True), f"{place}: the policy's token is not certified."


def check_files(listed: Row, files: dict[str, bytes]) -> Comparing:
    """Every file that the manifest lists is there as it was written, and no other."""
    found = {name: {"sha256": _sha256(data), "bytes": len(data)} for name, data in files.items()}
    for name in (listed.keys() | found.keys()) - {"manifest.json"}:
        yield _same(name, "its digest in the manifest", listed.get(name), found.get(name))


def check_digests(report: Row, manifest: Row, files: dict[str, bytes]) -> Comparing:
    """Each digest is the digest of its content, and the manifest repeats it."""
    session, log, used, last = report["session"], report["log"], report["thresholds"] or {}, "0" * 64
    used_with, steps = session["fingerprint"], _sha256(_canonical(report["branches"]))
    own = _sha256(_canonical(used_with, spaced=True))
    yield _same("report.json", "the digest of the steps", report["steps_digest"], steps)
    yield _same("report.json", "the fingerprint", session["fingerprint_digest"], own)
    for number, entry in enumerate(log, 1):
        said = {**entry, "session": session["id"], "format": 1, "entry": number, "previous": last}
        del said["digest"]
        last = _sha256(_canonical(said))
        yield _same(f"Entry {number}", "its digest", [entry["previous"], entry["digest"]], [said["previous"], last])
    yield _same("report.json", "the head of the verdict log", report["log_head"], last if log else "")
    own = {"digest": _canonical(used["families"])} if used else {}
    for name, data in (own | {"calibration_digest": files.get("calibration.zip")} if used else {}).items():
        yield _same("report.json", name, used[name] if data else None, _sha256(data) if data else None)
    told = {"model_weights": used_with.get("weights"), "tokenizer": used_with.get("tokenizer"),
            "fingerprint": session["fingerprint_digest"], "calibration": used.get("calibration_digest"),
            "thresholds": used.get("digest"), "steps": steps, "prompt": _sha256(_canonical(session["prompt"])),
            "log_entries": len(log), "log_head": report["log_head"]}  # fmt: skip
    computed = [told, report["program"], {"id": session["id"], "name": session["name"]}]
    yield _same("manifest.json", "what it says", [manifest[k] for k in ("digests", "program", "session")], computed)


def parts_of(data: bytes) -> Iterator[tuple[str | None, Row, list[tuple[float, int, int]]]]:
    """The parts of a calibration: family (none of a joint mask), settings, and (value, step, context) of each row."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        settings = json.loads(archive.read("calibration.json"))
        for family in settings.get("families", ()):
            whole = {"whole": settings["alpha"], "parts": len(settings["families"])}
            yield from ((family, own | whole, rows) for _, own, rows in parts_of(archive.read(f"{family}.npz")))
        if "families" in settings:
            return
        arrays, columns = zipfile.ZipFile(io.BytesIO(archive.read("values.npz"))), []
    for name in ("values.npy", "steps.npy", "contexts.npy"):
        raw = arrays.read(name)
        start = 10 + int.from_bytes(raw[8:10], "little")
        kind = {"<f4": "<f", "<i4": "<i"}[ast.literal_eval(raw[10:start].decode("latin-1"))["descr"]]
        columns.append([number for (number,) in struct.iter_unpack(kind, raw[start:])])
    yield None, settings, list(zip(*columns, strict=True))


def bins_of(part: Row, rows: list[tuple[float, int, int]], settings: Row) -> list[Row]:
    """The thresholds by position of a calibration's values, with exact ranks (paper, Sec. 3.4)."""
    shift, estimator, alpha = part.get("shift", {}), part["fingerprint"]["estimator"], Fraction(str(settings["alpha"]))
    if estimator == "one_per_context":
        raise SkippedError("the values were drawn at random, which only the program's verify repeats")
    if "whole" in part:
        shared = Fraction(math.floor(alpha / part["parts"] * 10**9), 10**9)
        alpha = Fraction(str(part["alpha"])) if settings["alpha"] == part["whole"] else shared
    level, new = alpha / Fraction(str(shift.get("rho", 1.0))), Fraction(shift.get("test_weight", 1))
    weights = dict(zip(shift.get("contexts", ()), map(Fraction, shift.get("weights", ())), strict=True))
    if settings.get("group") is not None:
        rows = [row for row in rows if row[2] in part["groups"][settings["group"]]]
    width, most, spacing = part["bin_width"], part["max_position"], part.get("bin_spacing", "even")
    starts = {*range(0, most, 1 if spacing == "finest" else width)}
    if spacing == "widening":
        starts |= {1 << power for power in range(20) if 1 << power < min(width, most)}
    elif spacing == "finest":
        weight: dict[int, Fraction] = {}
        for step, context in {row[1:] for row in rows}:
            weight[step] = weight.get(step, Fraction(0)) + weights.get(context, 1)
        starts = {*range(min(most, 1 + max((s for s in weight if weight[s] >= (1 / level - 1) * new), default=0)))}
    held: dict[int, list[tuple[float, int]]] = {start: [] for start in sorted(starts)}
    for value, step, context in rows:
        held[next(start for start in reversed(held) if start <= step)].append((value, context))
    made: list[Row] = []
    for first, after in zip(held, [*held, None][1:], strict=True):
        sizes, log_tau, mass = Counter(context for _, context in held[first]), -math.inf, Fraction(0)
        total = sum(weights.get(one, 1) * (sizes[one] if estimator == "pooled" else 1) for one in sizes) + new
        for value, context in sorted(held[first], reverse=True):
            mass += Fraction(weights.get(context, 1)) / (1 if estimator == "pooled" else sizes[context])
            if mass >= (1 - level) * total:
                log_tau = value
                break
        state = "calibrated" if log_tau >= WEAKEST else "uninformative"
        made.append({"first_step": first, "last_step": after and after - 1, "log_tau": log_tau, "state": state,
                     "contexts": len(sizes)})  # fmt: skip
    lenders = [(place, one) for place, one in enumerate(made) if one["contexts"] and one["log_tau"] > -math.inf]
    for place, entry in enumerate(made):
        if not entry["contexts"] and lenders:
            log_tau = min(lenders, key=lambda one: abs(one[0] - place))[1]["log_tau"]
            made[place] = entry | {"log_tau": log_tau, "state": "inherited" if log_tau >= WEAKEST else "uninformative"}
    return made


def check_thresholds(report: Row, files: dict[str, bytes]) -> Comparing:
    """Thresholds are those of the calibration's values, in the report's list and at every step."""
    session, used = report["session"], report["thresholds"] or {"families": (), "applied": False}
    settings, applied = session["policy_settings"]["settings"], used["applied"]
    listed = {one["family"]: [*map(_numeric, one["bins"])] for one in used["families"]}
    if report["thresholds"] is None and session["calibration_label"]:
        raise SkippedError("the calibration had been deleted before the export")
    nothing, vocabulary = "uninformative" if applied else "none", session["policy_settings"].get("vocabulary")
    for place, step, _ in _steps_of(report):
        found = []
        for family in [*(part["family"] for part in step["families"]), None]:
            held = [one for one in listed.get(family, ()) if applied and one["first_step"] <= step["index"]]
            found.append((held[-1]["log_tau"], held[-1]["state"]) if held else (-math.inf, nothing))
        for part, (log_tau, _) in zip(step["families"], found, strict=False):
            yield _same(f"{place}, family {part['family']}", "the log-threshold", part["log_tau"], log_tau)
        found = found[:-1] if applied and settings["mask_layout"] == "factorized" else found[-1:]
        log_tau = min((one for one, _ in found), default=-math.inf)
        state = min((one for _, one in found), key=WORST_FIRST.index, default=nothing)
        if applied or settings["policy"] not in REFUSING:
            yield _same(place, "the log-threshold", step["log_tau"], log_tau)
        if vocabulary and step.get("bounds") is None:
            wide = step["set_size"] / vocabulary >= (MANY if step["certified_mass"] >= NEARLY_ALL else LARGE)
            state = "uninformative" if state in WORST_FIRST[2:] and (log_tau < WEAKEST or wide) else state
            mismatched = state != "none" and session["certificate"].startswith("uncertified: policy mismatch")
            yield _same(place, "what the threshold rests on", step["state"], "mismatch" if mismatched else state)
    if data := files.get("calibration.zip"):
        made = {family: bins_of(part, rows, settings) for family, part, rows in parts_of(data)}
        yield _same("report.json", "the thresholds", listed, made)


def check_controls(report: Row) -> Comparing:
    """p-values follow from the effects of marked and other words: step-down max-T over all steps."""
    for part in report.get("controls", ()):
        for family in part["controls"]["families"]:
            table = [row["effects"] for row in (family["marked"], *(family["neutral"] or family["others"]))]
            order, p_values, largest = sorted(range(len(table[0])), key=lambda t: -table[0][t]), {}, 0.0
            for done, step in enumerate(order):
                tops = [max(row[t] for t in order[done:]) for row in table]
                p_values[step] = largest = max(largest, sum(top >= tops[0] for top in tops) / len(tops))
            computed = [p_values[step] for step in sorted(p_values)]
            yield _same(f"Branch {part['branch']}, {family['family']}", "the p-values", family["p_values"], computed)


def check_decisions(run: Row, manifest: Row) -> Comparing:
    """Impact ratios, and the exact p-values of every two groups within pairs, follow from the rows."""
    own = _sha256(_canonical(run["decisions"]))
    yield _same("manifest.json", "the digests", manifest["digests"], {"file": run["sha256"], "decisions": own})
    known = [row for row in run["decisions"] if row["selected"] is not None and (row["group"] or "").strip()]
    totals, chosen = (Counter(row["group"] for row in known if row["selected"] >= least) for least in (0, 1))
    small = {name for name in totals if run["rule"]["exclude_small"] and totals[name] / len(known) < 0.02}
    highest = max((chosen[name] / totals[name] for name in totals if name not in small), default=0.0)
    yield _same("decisions.json", "the groups", [row["group"] for row in run["groups"]], [*totals])
    for name, row in zip(totals, run["groups"], strict=False):
        rate = chosen[name] / totals[name]
        computed = [totals[name], chosen[name], rate, rate / highest if highest and name not in small else None]
        yield _same(name, "the impact ratio", [row[k] for k in ("total", "selected", "rate", "ratio")], computed)
    for test in run["tests"]:
        strata: dict[Any, list[int]] = {}
        for row in (one for one in known if one["group"] in (test["first"], test["second"])):
            own = strata.setdefault((row["pair"] or ("", row["line"])) if run["paired"] else None, [0, 0, 0, 0])
            place = 0 if row["group"] == test["first"] else 2
            own[place], own[place + 1] = own[place] + row["selected"], own[place + 1] + 1
        law, off = {Fraction(0): 1}, Fraction(0)  # how far the first group's selections are from what is expected
        for one, first, two, second in strata.values():
            mean, most = Fraction(first * (one + two), first + second), min(first, one + two)
            ways = {k - mean: math.comb(first, k) * math.comb(second, one + two - k)
                    for k in range(max(0, one + two - second), most + 1)}  # fmt: skip
            off, made = off + one - mean, Counter[Fraction]()
            for a, b in product(law, ways):
                made[a + b] += law[a] * ways[b]
            law = dict(made)
        p_value = Fraction(sum(law[far] for far in law if abs(far) >= abs(off)), sum(law.values()))
        yield _same(f"{test['first']}, {test['second']}", "the p-value", test["p_value"], float(p_value), EXACT)


def check_tables(report: Row, files: dict[str, bytes]) -> Comparing:
    """The tables say what the report says, in every column that has the name of one of its fields."""

    def cell(value: Any) -> str:
        if value is None or isinstance(value, bool | int | float):
            return "" if value is None else str(value).lower() if isinstance(value, bool) else repr(value)
        text = str(value).encode("utf-8", "replace").decode()
        return "'" * (text[:1] in {*"=+-@\t\r\0＝＋－＠"}) + text

    session = report["session"] | {"session_id": report["session"]["id"], "drift": report["drift"]}
    session["fingerprint"] = session["fingerprint_digest"]
    steps, rows, entries = [], [], [{"session_id": session["id"], **entry} for entry in report["log"]]
    for _, step, branch in _steps_of(report):
        place = {"step": step["index"] + 1, "branch": branch["path"], "tau": math.exp(step["log_tau"])}
        own: Row = {name[4:]: math.exp(step[name]) for name in VIEWS} | {"threshold_state": step["state"]}
        steps.append(session | step | place | own)
        for rank, row in enumerate(step["candidates"], 1):
            own = {name[4:]: math.exp(row[name]) for name in VIEWS} | {"rank": rank, "session_id": session["id"]}
            rows.append(row | place | own | {"emitted": row["token_id"] == step["token_id"]})
    for name, expected in {"steps.csv": steps, "candidates.csv": rows, "annotations.csv": entries}.items():
        told = list(csv.DictReader(io.StringIO(files[name].decode("utf-8"), newline="")))
        yield _same(name, "the number of rows", len(told), len(expected))
        for line, (given, known) in enumerate(zip(told, expected, strict=False), 2):
            for column in (given.keys() & known.keys()).difference(OTHER_FORM):
                yield _same(f"{name}, line {line}", column, given[column], cell(known[column]))


def holds_for(key: bytes, text: bytes, signature: bytes) -> bool:
    """Whether an Ed25519 signature is a key's of a text (RFC 8032, section 5.1.7)."""

    def plus(a: list[int], b: list[int]) -> list[int]:
        t = CURVE * a[0] * b[0] * a[1] * b[1]
        x, y = (a[0] * b[1] + b[0] * a[1]) * pow(1 + t, -1, PRIME), (a[1] * b[1] + a[0] * b[0]) * pow(1 - t, -1, PRIME)
        return [x % PRIME, y % PRIME]

    def times(number: int, point: list[int]) -> list[int]:
        half = times(number >> 1, plus(point, point)) if number else [0, 1]
        return plus(half, point) if number & 1 else half

    def point(data: bytes) -> list[int]:
        sign, y = divmod(int.from_bytes(data, "little"), 2**255)
        square = (y * y - 1) * pow(CURVE * y * y + 1, -1, PRIME) % PRIME
        x = pow(square, (PRIME + 3) // 8, PRIME)
        x = x if (x * x - square) % PRIME == 0 else x * pow(2, (PRIME - 1) // 4, PRIME) % PRIME
        if (x * x - square) % PRIME or y >= PRIME or sign > 1 or (sign and not x):
            raise ValueError("a key or signature is not a point of the curve")
        return [x if x % 2 == sign else PRIME - x, y]

    factor = int.from_bytes(hashlib.sha512(signature[:32] + key + text).digest(), "little") % ORDER
    number, right = int.from_bytes(signature[32:], "little"), plus(point(signature[:32]), times(factor, point(key)))
    return number < ORDER and times(number, point(bytes([88] + [102] * 31))) == right


def check_signature(manifest: Row, trusted: str | None) -> Comparing:
    """Every signature is of this manifest, and one is by the trusted key."""
    text, signers = _canonical({**manifest, "signatures": []}), []
    for number, item in enumerate(manifest["signatures"], 1):
        key, signature = (base64.b64decode(item[name], validate=True) for name in ("public_key", "signature"))
        fits = item["algorithm"] == "ed25519" and len(key) == 32 and holds_for(key, text, signature)
        yield fits, f"Signature {number} is not one of this manifest."
        signers.append(_sha256(key))
    yield trusted is None or trusted in signers, f"It is not signed by the key {trusted}, but by {signers or 'nobody'}."


def _read(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        if len({*names}) < len(names) or sum(one.file_size for one in archive.infolist()) > 2**30:
            raise ValueError("it holds a file twice, or more than 1 GB")
        return {name: archive.read(name) for name in names}


def checked(files: dict[str, bytes], trusted: str | None = None) -> dict[str, list[str] | str]:
    """The problems that each check found, or why it was not made."""

    def single(pairs: list[tuple[str, Any]]) -> Row:
        if len(made := dict(pairs)) < len(pairs):
            raise ValueError("an object has a key twice")
        return made

    main_file = next((name for name in ("decisions.json", "report.json") if name in files), "manifest.json")
    manifest, report = (json.loads(files[name], object_pairs_hook=single) for name in ("manifest.json", main_file))
    made = {"Files": check_files(manifest["files"], files), "Signature": check_signature(manifest, trusted)}
    if main_file == "decisions.json":
        made["Impact ratios and p-values"] = check_decisions(report, manifest)
    elif main_file == "report.json":
        made |= {"Digests": check_digests(report, manifest, files), "Tables": check_tables(report, files),
                 "Thresholds": check_thresholds(report, files), "Certified tokens": check_certified(report),
                 "p-values": check_controls(report)}  # fmt: skip
    found: dict[str, Any] = {}
    for name, check in made.items():
        found[name] = problems = []
        try:
            problems.extend(problem for holds, problem in check if not holds)
        except SkippedError as why:
            found[name] = problems or str(why)
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, zipfile.BadZipFile) as error:
            found[name] = [f"It holds a value that cannot be read ({error!r})."]
    return found


def main(arguments: list[str] | None = None) -> int:
    """Check a bundle and print what was found."""
    parser = ArgumentParser(description="Check an evidence bundle of COFT Audit.")
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--key", help="the key that must have signed: a PEM file, or the SHA-256 of the key")
    parser.add_argument("--unsigned", action="store_true", help="end with 0 although nobody signed it")
    given = parser.parse_args(arguments)
    try:
        key, files = given.key, _read(given.bundle)
        if key and Path(key).is_file():
            key = _sha256(base64.b64decode(Path(key).read_text("ascii").split("-----")[2])[-32:])
        found, signers = checked(files, key), json.loads(files["manifest.json"])["signatures"]
    except (OSError, ValueError, LookupError, TypeError, zipfile.BadZipFile) as error:
        print(f"{given.bundle} cannot be read as an evidence bundle: {error!r}.")
        return 2
    for name, told in found.items():
        print(f"{name:16} {f'skipped: {told}' if isinstance(told, str) else 'FAILED' if told else 'passed'}")
        print(*(f"  - {problem}\n" for problem in told[:20] if isinstance(told, list)), sep="", end="")
    print(BEYOND, *(f"Signed by the key {_sha256(base64.b64decode(item['public_key']))}" for item in signers), sep="\n")
    failed = any(told for told in found.values() if isinstance(told, list))
    print("" if signers else "NOT SIGNED: anybody can have made it.")
    print("THE EVIDENCE DOES NOT HOLD TOGETHER." if failed else "Nothing contradicts the evidence.")
    return 1 if failed else 0 if signers or given.unsigned else 3


if __name__ == "__main__":
    sys.exit(main())
