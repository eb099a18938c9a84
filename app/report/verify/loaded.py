"""A report that was read from a file, with everything that its checks need."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from app.report.bundle import CALIBRATION, LARGEST_FILE, MANIFEST, REPORT, read_manifest, tables_of, unpack
from app.report.document import BranchPart, ReportPart, branch_records, chains_in, report_from, report_text
from app.report.tables import SessionData
from app.shared.audits import AuditSettings, settings_from_json
from app.shared.errors import ServiceError
from app.shared.files import plain_json
from app.shared.policies import certifies
from app.shared.thresholds import reading_for
from coft_core.conformal import informative
from coft_core.conformal.calibration import Calibration
from coft_core.conformal.chain import ChainCertificate, certify_chain
from coft_core.errors import CoftError
from coft_core.types import Certificate, CertificateState, Step


class Bundled(Protocol):
    """What checks of files and signatures need of a bundle."""

    @property
    def files(self) -> Mapping[str, bytes] | None:
        """The files by name."""

    @property
    def manifest(self) -> Mapping[str, object] | None:
        """The manifest, as it is read."""


@dataclass(frozen=True)
class Loaded:
    """A report and what came with it; what many checks need of it is worked out once."""

    source: str
    report: ReportPart
    settings: AuditSettings
    files: Mapping[str, bytes] | None = None
    manifest: Mapping[str, object] | None = None
    bundle_digest: str | None = None
    stated: Calibration | None = None
    calibration: Calibration | None = None
    calibration_problem: str = ""

    @property
    def applied(self) -> Calibration | None:
        """The calibration whose thresholds were applied: the session's policy takes none, or none of another layout."""
        if self.calibration is None or not certifies(self.settings):
            return None
        return self.calibration if self.calibration.layout == self.settings.mask_layout else None

    @property
    def lacks_calibration(self) -> bool:
        """Whether the session used a calibration that is not at hand: deleted, unusable, or left in the bundle."""
        return bool(self.report.session.calibration_label) and self.calibration is None

    @property
    def mismatched(self) -> bool:
        """Whether the thresholds are those of another policy, used knowingly."""
        return Certificate.read(self.report.session.certificate).mismatched

    def chains(self) -> dict[str, tuple[Step, ...]]:
        """The whole chain of every branch by the branch's path; only where the branches hold together."""
        paths = {branch.id: branch.path for branch in self.report.branches}
        return {paths[key]: chain for key, chain in self._chains.items()}

    @cached_property
    def _chains(self) -> dict[int, tuple[Step, ...]]:
        return chains_in(self.report)

    @cached_property
    def document(self) -> dict[str, Any]:
        """The report as JSON, for checks that need nothing of the program."""
        return dict(plain_json(report_text(self.report)))

    def own_steps(self) -> Iterator[tuple[str, BranchPart, Step]]:
        """Every stored step once, with its place in words and the branch that made it.

        Only where the branches hold together.
        """
        chains = self.chains()
        for branch in self.report.branches:
            for step in chains[branch.path][branch.fork_step or 0 :]:
                yield place_of(branch, step), branch, step

    def chain_certificate(self, steps: tuple[Step, ...], finished: str | None) -> ChainCertificate | None:
        """What may be claimed of a chain as a whole."""
        calibration = self.applied
        if calibration is None or calibration.layout == "factorized" or not steps:
            return None
        return certify_chain(calibration, steps, finished, self.vocabulary)

    def computed(self, fresh: Step, stated: Step) -> Step:
        """A step computed again; one of an earlier session, which another rule judged, keeps what is stated of it."""
        if self.vocabulary is not None or "uninformative" not in (fresh.state, stated.state):
            return fresh
        return replace(fresh, state=stated.state, certified=stated.certified)

    @property
    def vocabulary(self) -> int | None:
        """Tokens of the model's vocabulary; None where the session was stored without it."""
        stated = self.report.session.policy_settings.get("vocabulary")
        return stated if isinstance(stated, int) and stated > 0 else None

    def judged(self, state: CertificateState, step: Step, log_tau: float) -> CertificateState:
        """What a step's threshold may be said to rest on, by the rule with which its session was written."""
        if self.vocabulary is not None:
            return informative.stated(state, log_tau, *step.widest, self.vocabulary)
        # Earlier versions had other rules, and a session can have been continued under a later one.
        silent = informative.is_weak(log_tau) or step.state == "uninformative"
        return "uninformative" if silent and informative.certifies(state) else state

    @cached_property
    def tables(self) -> dict[str, bytes]:
        """The tables that follow from the report, by name; only where the branches hold together."""
        return tables_of(self.data())

    def data(self) -> SessionData:
        """The session as its tables are written from it; only where the branches hold together."""
        chains, ids = self._chains, {branch.path: branch.id for branch in self.report.branches}
        finished = {branch.id: branch.finished for branch in self.report.branches}
        certificates = {key: self.chain_certificate(chain, finished[key]) for key, chain in chains.items()}
        return SessionData(
            record=self.report.session,
            branches=branch_records(self.report),
            chains=chains,
            log=self.report.log,
            certificates=certificates,
            drift=self.report.drift,
            controls={ids[part.branch]: part.controls for part in self.report.controls if part.branch in ids},
        )


def place_of(branch: BranchPart, step: Step) -> str:
    """Where a step stands, in words; steps count from 1."""
    return f"Branch {branch.path}, step {step.index + 1}"


def load(path: Path) -> Loaded:
    """Read an evidence bundle, or a report alone (``.json``)."""
    if path.suffix.lower() == ".json":
        return _report_alone(path)
    files = unpack(path)
    for name in (MANIFEST, REPORT):
        if name not in files:
            raise ServiceError(f"{path.name} has no {name}, so it is no evidence bundle; choose one that was exported.")
    manifest = read_manifest(files[MANIFEST])
    report = report_from(files[REPORT])
    loaded = Loaded(
        source=path.name,
        report=report,
        settings=_settings(report),
        files=files,
        manifest=manifest,
        bundle_digest=hashlib.sha256(files[MANIFEST]).hexdigest(),
    )
    return loaded if CALIBRATION not in files else _with_calibration(loaded, files[CALIBRATION])


def _report_alone(path: Path) -> Loaded:
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise ServiceError(f"{path.name} is larger than {LARGEST_FILE // 2**20} MB; it was not read.")
        report = report_from(path.read_bytes())
    except OSError as error:
        raise ServiceError(f"{path} cannot be read ({error.strerror}); check the path.") from error
    return Loaded(path.name, report, _settings(report))


def _settings(report: ReportPart) -> AuditSettings:
    try:
        return settings_from_json(report.session.policy_settings["settings"])
    except (KeyError, TypeError, AttributeError) as error:
        raise ServiceError(f"The report's settings cannot be read ({error}); it is damaged.") from error


def _with_calibration(loaded: Loaded, data: bytes) -> Loaded:
    # The session's own id of its calibration means nothing here; only risk level and group are read.
    try:
        stated = Calibration.from_bytes(data)
        loaded = replace(loaded, stated=stated)
        return replace(loaded, calibration=reading_for(stated, loaded.settings))
    except CoftError as error:
        return replace(loaded, calibration_problem=str(error))
