"""Reports of past audits: exported, and those from elsewhere computed again and compared."""

from __future__ import annotations

import sys
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from textwrap import wrap
from typing import Annotated

from app.report.bundle import bundle_digest
from app.report.imports import BundleImports, ImportedSession
from app.report.service import EXPORTS, FORMAL, ReportService
from app.report.signing import Signer
from app.report.verify.findings import Check, Verification
from app.report.verify.run import BundleVerifier
from app.shared.commands import Choices
from app.shared.errors import ServiceError
from app.shared.files import write_bytes
from app.shared.formal_reports import Statement
from app.shared.needs import EXPORT, LEAD, READ
from app.shared.operations import command, operation
from app.shared.requirements import chosen
from app.shared.wiring import Services
from coft_core.messages import LANGUAGES

TEXTS = ("csv", "json")
"""Formats that can be written to standard output."""

MARKS = {"passed": "passed", "failed": "FAILED", "unsigned": "UNSIGNED", "unknown": "UNKNOWN", "skipped": "skipped"}
WIDTH = 110


def print_verification(verification: Verification) -> None:
    """The checks as a table, what does not fit, and what lies beyond."""
    print(f"{verification.source}: {verification.session}")
    if verification.bundle_digest:
        print(f"Bundle SHA-256 {verification.bundle_digest} (of its manifest)")
    width = max(len(check.name) for check in verification.checks)
    print()
    for check in verification.checks:
        _print_check(check, width)
    print(
        f"\n{verification.count('passed')} checks passed, {verification.count('failed')} failed, "
        f"{verification.count('skipped')} skipped: "
        + ("nothing contradicts the report." if verification.ok else "the report does not hold together.")
    )
    for check in verification.checks:
        if check.status in ("unsigned", "unknown"):
            loud = "IT IS NOT SIGNED. " if check.status == "unsigned" else ""
            print(f"{loud}Anybody can have made it, because it is {check.detail}.")
    print("\nWhat these checks cannot tell:")
    for file, listed in groupby(sorted(verification.beyond, key=lambda item: item.file), key=lambda item: item.file):
        print(f"{file}:")
        for item in listed:
            sentence = f"{item.reason} ({', '.join(item.fields)})"
            print("\n".join(wrap(sentence, WIDTH, initial_indent="- ", subsequent_indent="  ")))


def _print_check(check: Check, width: int) -> None:
    print(f"{MARKS[check.status]:8} {check.name:<{width}}  {check.detail}")
    for problem in check.problems:
        print("\n".join(wrap(problem, WIDTH, initial_indent="         - ", subsequent_indent="           ")))
    if (more := check.problem_count - len(check.problems)) > 0:
        print(f"         - and {more:,} more")


@operation(need=EXPORT, answer="report")
def export_csv(wired: Services, session_id: int, *, folder: Path) -> Path:
    """Write the report of a session.

    Args:
        session_id: The session.

    Returns:
        A CSV file with one row for each step of all branches, and every number and setting in it.
    """
    return wired[ReportService].write(session_id, "csv", folder)


@operation(need=EXPORT, answer="report")
def formal_report(
    wired: Services,
    session_id: int,
    auditor: str = "",
    question: str = "",
    language: str = "en",
    kind: str = "pdf",
    annexes: str = "",
    *,
    folder: Path,
) -> Path:
    """Write the formal report of a session: one page with the finding, and annexes for what the law asks for.

    Args:
        session_id: The session.
        auditor: Who audited.
        question: What the audit was to answer.
        language: en or de.
        kind: pdf, or formal for HTML.
        annexes: Further annexes, with commas: eu-ai-act, pren-18283, iso-42001, nist-ai-rmf, sr-26-2, nyc-summary,
            nyc-notice.

    Returns:
        The file.
    """
    if kind not in FORMAL:
        raise ServiceError(f"There is no formal report {kind!r}; choose {', '.join(FORMAL)}.")
    return wired[ReportService].write(
        session_id, kind, folder, Statement(auditor, question, language, annexes=chosen(annexes))
    )


@command("report")
def report(
    wired: Services,
    session: int,
    *,
    format: Annotated[str, Choices(tuple(EXPORTS))] = "csv",
    branch: int | None = None,
    auditor: str = "",
    question: str = "",
    language: Annotated[str, Choices(tuple(LANGUAGES))] = "en",
    annexes: str = "",
    out: Path | None = None,
) -> str | None:
    """Export a past audit.

    Args:
        session: session number
        format: csv: steps; json: everything; html: for people; zip: all tables; bundle: evidence that 'verify'
            recomputes; formal: one page and annexes as HTML; pdf: the same as PDF; inspect: a log of Inspect
        branch: only the chain of this branch (csv)
        auditor: who audited (formal, pdf)
        question: what the audit was to answer (formal, pdf)
        language: language of the report (formal, pdf)
        annexes: further annexes, with commas (formal, pdf): eu-ai-act, pren-18283, iso-42001, nist-ai-rmf, sr-26-2,
            nyc-summary, nyc-notice
        out: file to write; default for csv and json: standard output
    """
    if branch is not None and format != "csv":
        raise ServiceError("Only the format csv can be of one branch; leave --branch out.")
    if format not in FORMAL and (auditor or question or annexes or language != "en"):
        raise ServiceError(
            f"The format {format} has no auditor, question, annexes or language; leave them out, or choose pdf."
        )
    if out is None and format not in TEXTS:
        raise ServiceError(f"The format {format} is written to a file; name it with --out.")
    if branch is not None:
        content = wired[ReportService].csv(session, branch).encode("utf-8", "replace")
    else:
        content = wired[ReportService].content(
            session, format, Statement(auditor, question, language, annexes=chosen(annexes))
        )
    if out is None:
        sys.stdout.write(content.decode("utf-8"))
        return None
    written = str(write_bytes(out, content))
    if format != "bundle":
        return written
    digest = bundle_digest(content)
    return f"{written}\nBundle SHA-256 {digest} (of its manifest): publish it, so that others can compare."


@command("verify", json=lambda verification: {**asdict(verification), "ok": verification.ok}, text=print_verification,
         code=lambda verification: verification.code)  # fmt: skip
def verify(
    wired: Services,
    file: Path,
    *,
    replay: bool = False,
    key: Path | None = None,
    require_signature: bool = False,
    unsigned: bool = False,
) -> Verification:
    """Check an evidence bundle (.zip) or a report (.json): recompute what it says.

    It ends with 0 if nothing contradicts the report, 1 if something does, and 3 if only a signature is missing.

    Args:
        file: the bundle or the report
        replay: also load the model and write every branch again
        key: file with the public key that must have signed the bundle, or a folder of such files
        require_signature: fail if no known key signed the bundle; without --key, only this server's own is known
        unsigned: end with 0 although nobody signed it, as for a report by itself
    """
    return wired[BundleVerifier].verify(file, replay, key, require_signature, unsigned)


def _print_import(imported: ImportedSession) -> None:
    begun = "stands here already as" if imported.already else "is now"
    print(f"“{imported.name}” {begun} session {imported.session_id}; {imported.checks} checks of its bundle passed.")
    print(f"It is {imported.signature.detail}.")
    print(imported.origin)


@operation(need=LEAD, command="import", answer="imported", json=asdict, text=_print_import)
def import_bundle(wired: Services, file: Path, *, key: Path | None = None) -> ImportedSession:
    """Bring in the session of another server's evidence bundle, to be read and exported again, and never changed.

    A bundle that does not verify is refused, and nothing of it is kept.

    Args:
        file: the bundle (.zip)
        key: file with the public key that must have signed it

    Returns:
        The session's number here and its name, whether it stood here already, where it came from with the key that
        signed it, how many checks passed, and the check of its signature.
    """
    return wired[BundleImports].add(file, key)


@operation(need=READ, command="key")
def signing_key(wired: Services) -> str:
    """Give the public key by which this server's evidence bundles are signed; publish it where people trust you.

    Returns:
        an Ed25519 public key as PEM text, which 'verify --key' takes as a file
    """
    return wired[Signer].public_key
