"""An item of an evaluation as an audit: its prompt and spans, the method's settings and thresholds, its own seed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from app.audit.service import AuditService
from app.evaluate.items import ask_seed, spans_of, thinned
from app.evaluate.runs import EvaluationMethod
from app.hosting.model_host import ModelHost
from app.shared.audits import StartAudit
from app.shared.calibrations import CalibrationStore
from app.shared.errors import ServiceError
from app.shared.planning import Detectors, prompted
from coft_core.conformal.calibration import Calibration
from coft_core.fingerprint import same_digests
from coft_core.suites.base import Choices, Encoding, Item
from coft_core.suites.reading import bordered, encoded
from coft_core.text.masking import mask_prompt


@dataclass(frozen=True, slots=True)
class OpenedItem:
    """An audit of an item."""

    session_id: int
    branch_id: int
    note: str = ""


BEGUN = "The text begins a document, so the audit's prompt is its first word."


class ItemOpener:
    """Starts audits of items."""

    def __init__(
        self, audits: AuditService, host: ModelHost, detectors: Detectors, calibrations: CalibrationStore
    ) -> None:
        self._audits, self._host, self._detectors, self._calibrations = audits, host, detectors, calibrations

    def open(
        self,
        title: str,
        method: EvaluationMethod,
        item: Item,
        suite: str,
        seed: int,
        values: bytes | None,
        text: int,
        encoding: Encoding,
    ) -> OpenedItem:
        """Start an audit of an item's first ask."""
        detector = self._detectors.choose(method.settings)
        ask = thinned(item, detector, method.dropped).asks[0]
        ask = bordered(ask) if encoding == "together" else ask
        thresholds = self._stored(values, f"{title}, {method.label}, seed {seed}") if values else None
        settings = replace(method.settings, seed=ask_seed(seed, suite, item.id, 0), calibration_id=thresholds)
        name, spans = f"{title}, {item.id}, {method.label}, seed {seed}", spans_of(ask, detector)
        if not isinstance(ask, Choices):
            whole = replace(settings, max_new_tokens=ask.most_tokens)
            view = self._audits.start(StartAudit(ask.prompt, whole, spans, name))
            return OpenedItem(view.session_id, view.branch_id)
        if not 0 <= text < len(ask.texts):
            raise ServiceError(f"The item has {len(ask.texts)} texts and none at place {text}; count them from 0.")
        prompt, written = (ask.prompt, ask.texts[text]) if ask.prompt.strip() else _begun(ask.texts[text])
        opened = self._written(StartAudit(prompt, settings, spans, name), written, encoding)
        return opened if ask.prompt.strip() else replace(opened, note=BEGUN)

    def _written(self, request: StartAudit, text: str, encoding: Encoding) -> OpenedItem:
        """Start an audit that writes a text: where its policy chooses another token, the audit departs from that."""
        tokens = self._tokens(request, text, encoding)
        settings = replace(request.settings, max_new_tokens=max(len(tokens), 1))
        view = self._audits.start(replace(request, settings=settings))
        branch = view.branch_id
        for index, token in enumerate(tokens):
            step = self._audits.step(view.session_id, branch)
            if step is None:
                break
            if step.token_id != token:
                branch = self._audits.fork(view.session_id, branch, index, token).branch_id
        return OpenedItem(view.session_id, branch)

    def _tokens(self, request: StartAudit, text: str, encoding: Encoding) -> Sequence[int]:
        model = prompted(self._host.get(request.settings.model), request.settings)
        prompt = mask_prompt(model.tokenizer, request.prompt, (), chat=model.prompting, required=False)
        return encoded(model, prompt, text, encoding) if text else ()

    def _stored(self, values: bytes, name: str) -> int:
        """The calibration that an audit is certified by, stored once among all others."""
        calibration = Calibration.from_bytes(values)
        fingerprint = calibration.fingerprint
        for record in self._calibrations.list(fingerprint.model):
            if record.name == name and same_digests(record.fingerprint_digest, fingerprint.digest):
                return record.id
        return self._calibrations.add(replace(calibration, name=name)).id


def _begun(text: str) -> tuple[str, str]:
    """A text's first word, and the rest."""
    first = re.match(r"\s*\S+", text)
    end = first.end() if first else len(text)
    return text[:end], text[end:]
