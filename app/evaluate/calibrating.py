"""Thresholds of a method on a suite's calibration share, and what is said of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from pydantic import TypeAdapter

from app.evaluate.items import digest_of, spans_of
from app.evaluate.runs import CalibrationNote, EvaluationMethod
from app.shared.planning import controls_of
from app.shared.policies import policy_info
from coft_core.calibrate.run import (
    calibrate,
    calibrate_factorized,
    calibrate_many,
    calibrate_single_branch,
    example_length,
)
from coft_core.conformal.calibration import Calibration
from coft_core.conformal.quantile import minimum_contexts
from coft_core.fingerprint import SINGLE_BRANCH
from coft_core.model.forced import Room
from coft_core.model.language_model import LanguageModel
from coft_core.suites.base import Choices, Item, Suite
from coft_core.text.detection import SpanDetector
from coft_core.text.masking import keep_whitelisted
from coft_core.types import Example
from db.types import JsonObject

KEY_VERSION = 1
"""Part of every key; raised when thresholds are fitted otherwise."""

BIN_WIDTH = 8
"""Steps that share a threshold, all alike (paper, section 3.4)."""

LONGEST_ROLLOUT = 64
"""Tokens of a rollout at most where a suite gives texts to choose from."""

REFERENCE, ROLLOUT = "reference", "rollout"

FACTUAL_ROLLOUTS = (
    "The suite gives no references, so the thresholds were fitted on chains of the factual reading under them, and not "
    "on those of the method itself."
)


@dataclass(frozen=True, slots=True)
class CalibrationText:
    """What thresholds of a suite are fitted on."""

    examples: tuple[Example, ...]
    source: str
    steps: int
    left_out: int

    @property
    def content(self) -> JsonObject:
        """All of it that thresholds depend on."""
        steps = self.steps if self.source == ROLLOUT else None
        return {"examples": [asdict(example) for example in self.examples], "source": self.source, "steps": steps}


def source_of(suite: Suite, items: Sequence[Item]) -> str:
    """``reference`` where the suite gives a text that follows the prompt of every item that has one, else ``rollout``.

    All items of a suite decide, so that the thresholds of all seeds rest on the same kind of text.
    """
    prompted = [item for item in items if item.asks[0].prompt.strip()]
    given = (suite.reference(item) for item in prompted)
    return REFERENCE if prompted and all(text is not None and text.strip() for text in given) else ROLLOUT


def calibration_text(
    suite: Suite, items: Sequence[Item], apart: Collection[int], model: LanguageModel, detector: SpanDetector
) -> CalibrationText:
    """What thresholds are fitted on."""
    source = source_of(suite, items)
    examples = []
    for place in sorted(apart):
        example = _example(suite, items[place], source, detector)
        if example is not None and example_length(model, example) < model.context_length:
            examples.append(example)
    asks = [ask for item in items for ask in item.asks]
    written = [ask.most_tokens for ask in asks if not isinstance(ask, Choices)]
    steps = max(written, default=0) or _longest_text(model, asks)
    return CalibrationText(tuple(examples), source, steps, len(apart) - len(examples))


def _example(suite: Suite, item: Item, source: str, detector: SpanDetector) -> Example | None:
    """An item's text: of references the first ask's, of rollouts that of the first ask with a prompt."""
    asks = item.asks[:1] if source == REFERENCE else item.asks
    ask = next((ask for ask in asks if ask.prompt.strip()), None)
    if ask is None:
        return None
    # What is kept is left out: it is as visible without its mark, which would make the policy another one.
    spans = tuple(span for span in spans_of(ask, detector) if not span.kept)
    return Example(ask.prompt, suite.reference(item) if source == REFERENCE else None, spans, context=item.unit)


def _longest_text(model: LanguageModel, asks: Sequence[Any]) -> int:
    longest = max((text for ask in asks for text in ask.texts), key=len)
    tokens = len(model.tokenizer.encode(longest, add_special_tokens=False))
    return min(max(tokens, 1), LONGEST_ROLLOUT)


def calibration_key(method: EvaluationMethod, policy: str, text: CalibrationText, seed: int) -> str:
    """What a calibration is kept under: a digest of all that it depends on."""
    read = {"alpha": method.settings.alpha, "bins": BIN_WIDTH, "seed": seed}
    return digest_of([KEY_VERSION, policy, read, text.content])


def thresholds_digest(calibration: Calibration | None) -> str:
    """What answers depend on of thresholds: equal ones, such as those that say nothing, give equal answers."""
    if calibration is None:
        return ""
    return digest_of(
        [
            (family, [(start, *calibration.bound(start, family)) for start in part.positions.starts])
            for family, part in calibration.parts
        ]
    )


def fitted(
    methods: Sequence[EvaluationMethod],
    model: LanguageModel,
    text: CalibrationText,
    seed: int,
    detector: SpanDetector,
    room: Room,
    told: Callable[[int, int], None],
) -> list[Calibration | None]:
    """Thresholds of methods on one text; those that differ only in lambda share their readings of references.

    None for a method with factorized masks where nothing is masked in any text, and for all where there is none.
    """
    options: dict[str, Any] = {
        "bin_width": BIN_WIDTH, "bin_spacing": "even", "seed": seed, "detector": detector, "room": room,
        "progress": told, "max_new_tokens": text.steps,
    }  # fmt: skip
    found: dict[int, Calibration] = {}
    alike: dict[str, list[int]] = {}
    for place, method in enumerate(methods):
        if _can_be_fitted(method, text):
            alike.setdefault(_but_for_lambda(place, method, text), []).append(place)
    for places in alike.values():
        chosen = [methods[place] for place in places]
        found |= dict(zip(places, _fitted_together(chosen, model, text, options), strict=True))
    return [found.get(place) for place in range(len(methods))]


def _can_be_fitted(method: EvaluationMethod, text: CalibrationText) -> bool:
    if method.settings.mask_layout != "factorized":
        return bool(text.examples)
    whitelist = method.settings.whitelist
    return any(
        span.masked and not span.kept
        for example in text.examples
        for span in keep_whitelisted(example.prompt, example.spans or (), whitelist)
    )


def _but_for_lambda(place: int, method: EvaluationMethod, text: CalibrationText) -> str:
    """Equal for methods whose references are read together; every other method has a value of its own."""
    factual = policy_info(method.settings.policy).certified_in == "factual"
    if factual or text.source == ROLLOUT or method.settings.mask_layout != "joint":
        return str(place)
    return digest_of([method.settings.alpha, controls_of(method.settings)])


def _fitted_together(
    methods: Sequence[EvaluationMethod], model: LanguageModel, text: CalibrationText, options: Mapping[str, Any]
) -> Sequence[Calibration]:
    settings = methods[0].settings
    given: dict[str, Any] = {**options, **controls_of(settings), "name": methods[0].label}
    if policy_info(settings.policy).certified_in == "factual":
        return [_of_the_factual_reading(model, text, settings.alpha, given)]
    lams = [lam_of(method) for method in methods]
    if settings.mask_layout == "factorized":
        return calibrate_factorized(model, text.examples, lams, settings.alpha, source=text.source, **given)
    if text.source == ROLLOUT:
        return [calibrate(model, text.examples, lams[0], settings.alpha, source=ROLLOUT, **given)]
    return calibrate_many(model, text.examples, lams, settings.alpha, **given)


def _of_the_factual_reading(
    model: LanguageModel, text: CalibrationText, alpha: float, given: Mapping[str, Any]
) -> Calibration:
    if text.source == REFERENCE:
        return calibrate_single_branch(model, text.examples, alpha, **given)
    # Without masks both readings are the factual one, so that its chains are those of COFT at lambda 0.
    plain = [replace(example, spans=()) for example in text.examples]
    joint = calibrate(model, plain, 0.0, alpha, source=ROLLOUT, **given)
    own = replace(joint.fingerprint, method=SINGLE_BRANCH)
    return joint.each(lambda part: replace(part, fingerprint=own))


def lam_of(method: EvaluationMethod) -> float:
    """The fusion weight of a method; 0 for one that fuses nothing."""
    return method.settings.lam if policy_info(method.settings.policy).fuses else 0.0


def note_of(
    calibration: Calibration | None, suite: str, method: EvaluationMethod, seed: int, text: CalibrationText
) -> CalibrationNote:
    """What is said of a method's thresholds, or that it has none."""
    alpha, notes = method.settings.alpha, _left_out(text)
    if policy_info(method.settings.policy).certified_in == "factual" and text.source == ROLLOUT:
        notes = (*notes, FACTUAL_ROLLOUTS)
    told = CalibrationNote(
        suite, method.label, seed, alpha, text.source, 0, minimum_contexts(alpha), None, None, None, 0, 0, 0,
        "there is no text of its kind in the calibration share, so nothing is certified", notes,
    )  # fmt: skip
    if calibration is None:
        return told
    measured = calibration.coverage
    bins = [entry for _, part in calibration.parts for entry in part.bins if entry.contexts]
    return replace(
        told,
        contexts=calibration.context_count,
        coverage=measured.coverage,
        low=measured.low,
        high=measured.high,
        checked=measured.contexts,
        bins=len(bins),
        uninformative=sum(entry.state == "uninformative" for entry in bins),
        silent=calibration.silence,
        notes=(*notes, *calibration.notes),
    )


def _left_out(text: CalibrationText) -> tuple[str, ...]:
    if not text.left_out:
        return ()
    counted = "1 item has" if text.left_out == 1 else f"{text.left_out:,} items have"
    return (f"{counted} no prompt or too long a one, and play no part in the thresholds.",)


def note_from(stored: Mapping[str, Any], suite: str, method: str, seed: int) -> CalibrationNote:
    """What is said of thresholds, for the method that they are used for: another evaluation may have fitted them."""
    named = {**stored, "suite": suite, "method": method, "seed": seed}
    return TypeAdapter(CalibrationNote).validate_python(named)
