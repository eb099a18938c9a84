"""A forger who has the program's own code: whatever she changes, every digest, table and summary is written again."""

import hashlib
import json
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, replace

from app.report.bundle import CALIBRATION, MANIFEST, REPORT, manifest_of, pack
from app.report.document import canonical, digest_of, report_from, report_text, summary_of, thresholds_of
from app.report.verify.loaded import load
from coft_core.fingerprint import Fingerprint
from db.verdicts import FIRST, entry_digest
from tests.app.report.conftest import files_of


@dataclass(frozen=True)
class Forgery:
    """What is changed, and how it comes out."""

    change: Callable[..., object]
    caught: str = ""
    replay: bool = False
    file: str = ""
    field: str = ""
    kind: str = "joint"
    rewrites: bool = False


def rebuilt(bundle, change, folder, rewrites=False, follows=True):
    """The bundle after a change, with all that follows from it written again."""
    files = files_of(bundle)
    data = json.loads(files[REPORT])
    change(data, files)
    session = data["session"]
    if follows:
        session["fingerprint_digest"] = Fingerprint.from_dict(session["fingerprint"]).digest
    if CALIBRATION in files and data["thresholds"] is not None:
        data["thresholds"]["calibration_digest"] = hashlib.sha256(files[CALIBRATION]).hexdigest()
    report = _digested(report_from(json.dumps(data)), follows)
    if rewrites:
        loaded = _drafted(report, files, folder)
        assert loaded.calibration is not None
        group, layout = loaded.settings.group, loaded.settings.mask_layout
        fresh = thresholds_of(loaded.calibration, files[CALIBRATION], layout, group)
        report = replace(report, thresholds=fresh)
    if follows:
        loaded = _drafted(report, files, folder)
        finished = {branch.path: branch.finished for branch in report.branches}
        summary = tuple(
            summary_of(
                path, steps, loaded.chain_certificate(steps, finished[path]), report.session.policy_settings,
                report.session.certificate,
            )
            for path, steps in loaded.chains().items()
        )  # fmt: skip
        report = replace(report, summary=summary)
        loaded = replace(loaded, report=report)
    else:
        loaded = _drafted(report, files, folder)
    files[REPORT] = report_text(report).encode()
    files.update(loaded.tables)
    files.pop(MANIFEST)
    return pack({MANIFEST: f"{canonical(manifest_of(report, files), indent=1)}\n".encode(), **files})


def forged(bundle, change, folder):
    """The bundle after a change of its report alone, from which neither summary nor verdict log follow."""
    return rebuilt(bundle, lambda report, _: change(report), folder, follows=False)


def fields_of(value, path=""):
    """Every kind of field of a document once, with what changes one of its values in place; lists have no numbers."""
    seen = set()
    for own, place in _leaves(value, path, ()):
        if own not in seen:
            seen.add(own)
            yield own, _changer(place)


def _leaves(value, path, place):
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(item, f"{path}.{key}".lstrip("."), (*place, key))
    elif isinstance(value, list):
        # One from the middle first: beginnings are often special.
        for index in sorted(range(len(value)), key=lambda index: abs(index - len(value) // 2)):
            yield from _leaves(value[index], path, (*place, index))
    elif value is not None:
        yield path, place


def _changer(place):
    def change(document):
        for key in place[:-1]:
            document = document[key]
        document[place[-1]] = _other(document[place[-1]])

    return change


def _other(value):
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return value - 0.01
    # A time stays one, a few seconds later.
    if len(value) > 19 and value[10] == "T" and value[:4].isdigit():
        return f"{value[:17]}{(int(value[17:19]) + 7) % 60:02}{value[19:]}"
    return f"{value}x"


def _drafted(report, files, folder):
    draft = folder / "draft.zip"
    with zipfile.ZipFile(draft, "w") as archive:
        for name, data in {**files, REPORT: report_text(report).encode()}.items():
            archive.writestr(name, data)
    return load(draft)


def _digested(report, with_log):
    report = replace(report, steps_digest=digest_of(report.branches))
    if report.thresholds is not None:
        own = digest_of(report.thresholds.families)
        report = replace(report, thresholds=replace(report.thresholds, digest=own))
    if not with_log:
        return replace(report, log_head=report.log[-1].digest if report.log else "")
    log, last = [], FIRST
    for entry in report.log:
        digest = entry_digest(entry.content, last)
        log.append(replace(entry, previous=last, digest=digest))
        last = digest
    return replace(report, log=tuple(log), log_head=last if log else "")
