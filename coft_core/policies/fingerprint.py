"""The fingerprint of a policy on a model."""

from __future__ import annotations

from coft_core.engine.model import LanguageModel
from coft_core.fingerprint import Fingerprint
from coft_core.masking.sentinel import resolve_sentinel
from coft_core.masking.settings import MaskSettings
from coft_core.sampling import Sampling

__all__ = ["MaskSettings", "policy_fingerprint"]


def policy_fingerprint(
    model: LanguageModel,
    lam: float,
    sampling: Sampling,
    mask: MaskSettings,
    detector: str,
    estimator: str,
    source: str,
    method: str = "",
) -> Fingerprint:
    """Collect everything that a threshold depends on besides the calibration contexts.

    Args:
        model: The model.
        lam: Fusion weight.
        sampling: Sampling controls.
        mask: Masking settings.
        detector: The span detector's version.
        estimator: Threshold estimator.
        source: Context source.
        method: The method with its parameters; empty for COFT and vanilla decoding, which the other fields describe.
    """
    sentinel = resolve_sentinel(model.tokenizer, mask.sentinel)
    return Fingerprint(
        model=model.name,
        revision=model.revision,
        weights=model.weights_digest,
        tokenizer=model.tokenizer_digest,
        dtype=model.dtype_name,
        chat_template=model.chat_template_digest,
        lam=float(lam),
        temperature=float(sampling.temperature),
        top_p=float(sampling.top_p),
        top_k=int(sampling.top_k),
        mask_mode=mask.label,
        sentinel="" if sentinel is None else sentinel.text,
        detector=detector,
        estimator=estimator,
        source=source,
        method=method,
        rendering=model.rendering_label,
    )
