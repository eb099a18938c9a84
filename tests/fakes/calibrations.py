"""Prompt sets and calibrations without a model or a database."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from app.shared.audits import AuditSettings, CalibrationRequest, CalibrationSummary, CalibrationView, ReadingRequest
from app.shared.errors import ServiceError
from app.shared.prompt_sets import (
    PROMPT_SET_FIELDS,
    CalibrationEstimate,
    ParsedPromptSet,
    PromptPreview,
    RowError,
    SamplePromptSet,
)
from coft_core.conformal.drift import DriftReport
from coft_core.conformal.families import split_alpha
from coft_core.errors import InvalidInputError
from coft_core.types import Example, Span
from tests.fakes.audits import FakeAudits
from tests.fakes.calibration_views import FAMILIES_OF, calibration_view, drift_report
from tests.fakes.data import SUMMARIES
from tests.fakes.reports_and_jobs import FakeJobs

ASSETS = Path(__file__).resolve().parents[2] / "assets"
KINDS: dict[str, dict[str, object]] = {
    "reference": {},
    "rollout": {"source": "rollout", "lam": 0.5},
    "factorized": {"mask_layout": "factorized"},
    "grouped": {"by_group": True},
    "weighted": {"weighting": "estimated"},
}


class FakeCalibrations:
    def __init__(self, jobs: FakeJobs, audits: FakeAudits) -> None:
        self.jobs = jobs
        self.audits = audits
        self.stored = {1: SUMMARIES[0]}
        self.made = {1: CalibrationRequest(SUMMARIES[0].name)}
        self.requests: list[CalibrationRequest] = []
        self.submitted: list[ParsedPromptSet] = []
        self.readings: list[ReadingRequest | None] = []
        self.deployments: list[tuple[str, ...]] = []
        self.drifts: dict[int, str] = {}

    def add(self, name: str, kind: str = "reference", **settings: object) -> int:
        """Store a calibration as if it had been made."""
        return self._store(CalibrationRequest(name, **{**KINDS[kind], **settings}))  # type: ignore[arg-type]

    def _store(self, request: CalibrationRequest) -> int:
        number = max(self.stored, default=0) + 1
        self.stored[number] = replace(
            SUMMARIES[0], id=number, name=request.name, embedded=False, alpha=request.alpha, lam=request.lam,
            source=request.source, estimator=request.estimator, mask_layout=request.mask_layout,
        )  # fmt: skip
        self.made[number] = request
        return number

    def parse(
        self, path: Path, filename: str | None = None, columns: Mapping[str, str] | None = None
    ) -> ParsedPromptSet:
        text = Path(path).read_text("utf-8")
        name = filename or Path(path).name
        if not text.strip():
            raise ServiceError(f"{name} is empty: it needs a header and at least one row.")
        table = list(csv.DictReader(io.StringIO(text))) if name.endswith(".csv") else _jsonl(text)
        header = tuple(dict.fromkeys(key for row in table for key in row))
        wanted = {field: (columns or {}).get(field, field) for field in PROMPT_SET_FIELDS}
        mapping = {field: column for field, column in wanted.items() if column in header}
        rows, errors, weights = [], [], []
        for line, row in enumerate(table, start=2 if name.endswith(".csv") else 1):
            given = {field: row.get(column) or None for field, column in mapping.items()}
            if not given.get("prompt"):
                errors.append(RowError(line, "prompt", "is empty"))
                continue
            rows.append((line, _example(given)))
            weights.append(float(given.get("weight") or 1))
        return ParsedPromptSet(
            name, len(text), "CSV, comma" if name.endswith(".csv") else "JSONL", tuple(rows),
            tuple(errors) if "prompt" in mapping else (), len(table),
            tuple(column for column in header if column not in mapping.values()), "0f",
            tuple(weights) if "weight" in mapping else (), header, tuple(mapping.items()),
        )  # fmt: skip

    def samples(self) -> tuple[SamplePromptSet, ...]:
        return (
            SamplePromptSet(
                "template.csv", "Ward and school notes", "Three short notes with their continuations.", 3,
                ASSETS / "templates" / "prompt_set.csv",
            ),
            SamplePromptSet(
                "calibration_demo.jsonl", "Demo prompts", "What the embedded calibration was made with.", 480,
                ASSETS / "prompts" / "calibration_demo.jsonl",
            ),
        )  # fmt: skip

    def row_errors(self, prompts: ParsedPromptSet, request: CalibrationRequest) -> tuple[RowError, ...]:
        missing = [
            RowError(line, "reference", "is empty")
            for line, example in prompts.rows
            if request.source == "reference" and not example.reference
        ]
        return tuple(sorted((*prompts.errors, *missing), key=lambda error: error.line))

    def preview(
        self, prompts: ParsedPromptSet, request: CalibrationRequest, limit: int = 12
    ) -> tuple[PromptPreview, ...]:
        settings = AuditSettings(masked_families=request.masked_families, user_list_id=request.user_list_id)
        found = []
        for line, example in prompts.rows[:limit]:
            spans = example.spans
            if spans is None:
                spans = tuple(span for span in self.audits.detect(example.prompt, settings) if span.masked)
            found.append(
                PromptPreview(
                    line, example.prompt, example.reference, spans, example.spans is None, example.group,
                    example.context,
                )
            )  # fmt: skip
        return tuple(found)

    def estimate(self, prompts: ParsedPromptSet, request: CalibrationRequest) -> CalibrationEstimate:
        bad = {error.line for error in self.row_errors(prompts, request)}
        good = [example for line, example in prompts.rows if line not in bad]
        contexts = {example.context or example.prompt for example in good}
        unmasked = sum(not row.spans for row in self.preview(prompts, request, len(prompts.rows)))
        seconds = 0.4 * len(good) * (request.max_iterations if request.source == "rollout" else 1)
        return CalibrationEstimate(
            len(good), len(contexts), math.ceil(1 / request.alpha) - 1, min(4, len(good)), seconds, unmasked
        )

    def submit(self, prompts: ParsedPromptSet, request: CalibrationRequest) -> int:
        bad = len({error.line for error in self.row_errors(prompts, request)})
        if bad and not request.accept_errors:
            raise ServiceError(f"{bad} rows cannot be used: correct them, or go on with the good rows.")
        if request.mask_layout == "factorized":
            split_alpha(request.alpha, request.masked_families or FAMILIES_OF, dict(request.alpha_by_family or ()))
        if request.weighting == "estimated" and not request.deployment:
            raise InvalidInputError("Weights are estimated from prompts in use, and none are given.")
        self.requests.append(request)
        self.submitted.append(prompts)
        number = self._store(request)
        return self.jobs.add(f"Calibration of {request.name}", {"calibration_id": number})

    def resume(self, job_id: int) -> int:
        before = self.jobs.stored[job_id]
        self.jobs.stored[job_id] = replace(before, resumable=False)
        return self.jobs.add(before.title, before.result or {})

    def list(self, model: str | None = None) -> tuple[CalibrationSummary, ...]:
        return tuple(reversed(self.stored.values()))

    def view(self, calibration_id: int, reading: ReadingRequest | None = None) -> CalibrationView:
        self._require(calibration_id)
        self.readings.append(reading)
        digest = "7f3a 91c2 d05e" if calibration_id == 1 else f"a1b2 {calibration_id:04d} 77fe"
        summary = self.stored[calibration_id]
        return calibration_view(summary, self.made[calibration_id], reading or ReadingRequest(), digest)

    def reweight(self, calibration_id: int, deployment: tuple[str, ...], name: str) -> int:
        self._require(calibration_id)
        self.deployments.append(deployment)
        name = name.strip() or f"{self.stored[calibration_id].name}, weighted"
        return self._store(replace(self.made[calibration_id], name=name, weighting="estimated"))

    def drift(self, calibration_id: int) -> DriftReport:
        return drift_report(self.drifts.get(calibration_id, "fresh" if calibration_id == 1 else "unknown"))

    def export(self, calibration_id: int, folder: Path) -> Path:
        self._require(calibration_id)
        path = Path(folder) / f"calibration-{calibration_id}.zip"
        path.write_bytes(b"values")
        return path

    def delete(self, calibration_id: int) -> None:
        del self.stored[calibration_id]

    def _require(self, calibration_id: int) -> None:
        if calibration_id not in self.stored:
            raise ServiceError(f"There is no calibration {calibration_id}; it may have been deleted.")


def _jsonl(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


def _example(given: dict[str, object]) -> Example:
    spans = given.get("spans")
    listed = json.loads(spans) if isinstance(spans, str) else spans
    marked = None if listed is None else tuple(Span(a, b, kind, "user") for a, b, kind in listed)
    prompt, reference, group, context = (given.get(name) for name in ("prompt", "reference", "group", "context"))
    return Example(str(prompt), reference, marked, group, context=context)  # type: ignore[arg-type]
