"""What a check found, in the formats that pipelines read: JSON, JUnit XML, SARIF and Markdown."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from app.gate.judge import Judged
from app.gate.run import Checked
from app.shared.format import plural, signed

SAID = {"pass": "pass", "fail": "fail", "undecided": "cannot tell yet"}
SARIF = "https://json.schemastore.org/sarif-2.1.0.json"
CODES = {"pass": 0, "fail": 1, "undecided": 2}
"""Exit codes; 3 is that of an error."""


def number(value: float | None) -> str:
    """A number of a table."""
    return "–" if value is None else f"{value:.3g}" if abs(value) < 0.001 else f"{value:.3f}"


def interval(one: Judged) -> str:
    """The interval of a claim's measure."""
    if one.low is None or one.high is None:
        return "after all items" if one.verdict == "undecided" else "–"
    return f"{number(one.low)} to {number(one.high)}"


def reason(one: Judged) -> str:
    """A claim's verdict in one sentence."""
    ends = f"lies between {number(one.low)} and {number(one.high)}"
    if one.low is None:
        ends = "is not known, since it is not a mean over items: it needs all items of the suite"
    seen = plural(one.observations, "item" if one.claim.suite else "context")
    return f"{one.claim.text}: {SAID[one.verdict]}; after {seen} the measure {ends}."


def summed_up(checked: Checked) -> str:
    """The whole in one sentence."""
    left = f"; {plural(checked.unread, 'prompt')} of the file not read" if checked.unread else ""
    read = [plural(checked.prompts, "prompt")] if checked.prompts_digest else []
    read += [f"{one.read:,} of {one.items:,} items of {one.key}" for one in checked.suites]
    return (
        f"{SAID[checked.verdict]}: {', '.join(read)} read in {checked.seconds:.0f} s{left}. All "
        f"verdicts together are wrong with a chance of at most {checked.asked.file.risk:g}."
    )


def left_out(checked: Checked) -> list[str]:
    """What could not be used, by reason."""
    places: dict[str, list[str]] = {}
    for place, why in checked.left_out:
        places.setdefault(why, []).append(place)
    return [f"{len(own):,} left out ({', '.join(own[:5])}): {why}" for why, own in places.items()]


def changed(checked: Checked) -> list[str]:
    """How rates have changed since an earlier check, in sentences."""
    said = []
    for one in checked.changes:
        p_value = "" if one.p_value is None else f", McNemar p = {one.p_value:.2g}"
        ends = f"95 % interval {signed(one.low, 3)} to {signed(one.high, 3)}"
        said.append(
            f"Since the baseline the mean of {one.outcome} for {one.group} has changed by {signed(one.change, 3)} "
            f"({ends}, {plural(one.contexts, 'context')}{p_value})."
        )
    return said


def check_json(checked: Checked) -> dict[str, Any]:
    """Everything, with the items that a later check can be compared with."""
    return {
        "verdict": checked.verdict,
        "exit_code": CODES[checked.verdict],
        "model": checked.model,
        "weights_digest": checked.weights_digest,
        "prompts_digest": checked.prompts_digest,
        "check": checked.asked.file.model_dump(mode="json"),
        "prompts": checked.prompts,
        "unread": checked.unread,
        "suites": [asdict(one) for one in checked.suites],
        "seconds": checked.seconds,
        "claims": [
            {
                "claim": one.claim.text,
                "line": one.claim.line,
                "verdict": one.verdict,
                "low": one.low,
                "high": one.high,
                "estimate": one.estimate,
                "observations": one.observations,
            }
            for one in checked.judged
        ],
        "changes": [asdict(change) for change in checked.changes],
        "left_out": [{"place": place, "reason": why} for place, why in checked.left_out],
        "items": [asdict(item) for item in checked.items],
    }


def junit(checked: Checked) -> bytes:
    """JUnit XML: a case for each claim; one that is undecided is an error, so that no reader takes it for a pass."""
    verdicts = [one.verdict for one in checked.judged]
    suite = ElementTree.Element(
        "testsuite", name=checked.asked.path.name, tests=str(len(verdicts)), failures=str(verdicts.count("fail")),
        errors=str(verdicts.count("undecided")), skipped="0", time=f"{checked.seconds:.3f}",
    )  # fmt: skip
    for one in checked.judged:
        case = ElementTree.SubElement(suite, "testcase", classname=checked.model, name=one.claim.text, time="0")
        if one.verdict != "pass":
            kind = "failure" if one.verdict == "fail" else "error"
            ElementTree.SubElement(
                case, kind, message=reason(one), type=one.verdict
            ).text = f"{checked.asked.path}:{one.claim.line}"
    root = ElementTree.Element("testsuites")
    root.append(suite)
    return bytes(ElementTree.tostring(root, encoding="utf-8", xml_declaration=True))


def sarif(checked: Checked) -> dict[str, Any]:
    """SARIF 2.1.0: a result for each claim that is not a pass, at its line of the file."""
    rules = {one.claim.measure: {"id": one.claim.measure} for one in checked.judged}
    level = {"fail": "error", "undecided": "warning"}
    # Where the file lies in the folder that the check is run in, readers can show the line itself.
    place = Path(os.path.relpath(checked.asked.path)).as_posix()
    results = [
        {
            "ruleId": one.claim.measure,
            "level": level[one.verdict],
            "message": {"text": reason(one)},
            "locations": [
                {"physicalLocation": {"artifactLocation": {"uri": place}, "region": {"startLine": one.claim.line}}}
            ],
        }
        for one in checked.judged
        if one.verdict != "pass"
    ]
    driver = {"name": "COFT Audit", "rules": list(rules.values())}
    return {"$schema": SARIF, "version": "2.1.0", "runs": [{"tool": {"driver": driver}, "results": results}]}


def markdown(checked: Checked) -> str:
    """A table for the summary of a pipeline."""
    head = ("Claim", "Verdict", "Estimate", "Interval", "Observations")
    rows = [
        (one.claim.text, f"**{SAID[one.verdict]}**", number(one.estimate), interval(one), str(one.observations))
        for one in checked.judged
    ]
    table = [f"| {' | '.join(row)} |" for row in (head, ("---",) * len(head), *rows)]
    notes = [f"- {note}" for note in (*changed(checked), *left_out(checked))]
    said = f"## {checked.model}: {SAID[checked.verdict]}"
    return "\n".join([said, "", summed_up(checked), "", *table, "", *notes])
