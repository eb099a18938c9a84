"""Reading an audit at another lambda or alpha from the logits that it kept, without the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import TypeVar

import torch

from coft_core.conformal.calibration import Calibration
from coft_core.conformal.families import FactorizedCalibration
from coft_core.decode.heads import Bounds, RereadFamily, RereadStep
from coft_core.decode.loop import ROOT_PATH, path_at
from coft_core.decode.prepared import StepContext, TextOf, difference, pack_step, unpack_step
from coft_core.decode.reread_heads import Circumstances, read_head
from coft_core.errors import InvalidInputError, StoredLogitsError
from coft_core.fingerprint import Fingerprint
from coft_core.policies.base import Policy, compared_certificate
from coft_core.policies.coft import CoftPolicy
from coft_core.policies.factorized import PREFIX, FactorizedCoftPolicy
from coft_core.policies.sampling import choose, keyed_uniform
from coft_core.stored_logits import StoredLogits
from coft_core.types import Step

AnyCalibration = Calibration | FactorizedCalibration
_AnyPolicy = TypeVar("_AnyPolicy", bound=Policy)


def reread(
    steps: Sequence[Step],
    policy: Policy,
    *,
    lam: float | None = None,
    alpha: float | None = None,
    calibration: AnyCalibration | None = None,
    seed: int = 0,
    path: str = ROOT_PATH,
    greedy: bool = False,
    fingerprint: Fingerprint | None = None,
    text_of: TextOf | None = None,
) -> tuple[RereadStep, ...]:
    """What each stored step would have said at another lambda, alpha or calibration, its prefix being as it was.

    Where all logits were kept, a step goes through the very computation of decoding. Where only heads were, every
    number comes with rigorous bounds, and what hangs on the rest of the vocabulary is None. The masks stay as they
    were.

    Args:
        steps: Steps decoded with ``keep_logits=True``.
        policy: The policy to read with, for example the one that decoded them; where only heads were kept, its
            temperature must be theirs.
        lam: Another fusion weight; None keeps the policy's.
        alpha: Another risk level, read off the calibration; None keeps the calibration's.
        calibration: Another calibration; None keeps the policy's. It must belong to the lambda, the temperature and
            the sampling controls in use, unless the policy says ``accept_mismatch``.
        seed: Seed of the chain's draws.
        path: Path of the branch whose chain it is.
        greedy: Whether the chain was decoded greedily.
        fingerprint: Fingerprint of the policy that decoded the steps, against which the calibration is checked; None
            takes that of the policy's own calibration.
        text_of: Gives the text of a token; None knows the texts stored with the steps, and shows other tokens by
            their number.

    Returns:
        One reading a step. Forced steps stay forced; ``changed`` compares what the policy chooses then and now.

    Raises:
        StoredLogitsError: A step was stored without its logits, or they do not serve for this policy.
        InvalidInputError: A parameter is outside its range, or there is no calibration to read alpha off.
        CalibrationMismatch: The calibration belongs to another policy.
    """
    reader = _with(policy, lam, alpha, calibration)
    mismatched = _is_mismatched(steps, policy, reader, fingerprint)
    texts = text_of or _stored_texts(steps)
    readings = []
    for step in steps:
        if step.logits is None:
            raise StoredLogitsError(
                f"Step {step.index + 1} was stored without its logits, so it cannot be read again; decode it with "
                "keep_logits."
            )
        _check_branches(reader, step.logits)
        draw = keyed_uniform(seed, path_at(path, step.index), step.index)
        circumstances = Circumstances(reader, draw, greedy, mismatched, texts)
        read = read_full if step.logits.mode == "full" else read_head
        readings.append(read(step, step.logits, circumstances))
    return tuple(readings)


def read_full(step: Step, stored: StoredLogits, circumstances: Circumstances) -> RereadStep:
    """Read a step again of which every logit was kept: the computation of decoding, on the stored logits."""
    policy = circumstances.policy
    with torch.inference_mode():
        views = policy.views(stored.tensor()[None], step.index, stored.branches)
        draw = torch.tensor([circumstances.uniform], dtype=torch.float64)
        choice = choose(views.log_p_fused, views.certified, policy.sampling, draw, circumstances.greedy)
        # The step's own bound, at the temperature with which it is read.
        noise = (step.noise or 0.0) * max(1.0, stored.temperature / policy.sampling.temperature)
        packed = pack_step(views, choice, torch.tensor([step.token_id]), noise)[0].tolist()
    context = StepContext(step.index, step.forced, circumstances.mismatched, noise)
    read = unpack_step(packed, circumstances.text_of, views, context)
    if step.noise is None:
        # Without a bound nothing can be said of what lies within it.
        read = replace(read, set_size_low=None, set_size_high=None, noise=None)
    own = next(candidate for candidate in read.candidates if candidate.token_id == step.token_id)
    families = tuple(
        RereadFamily(
            family=part.family,
            log_tau=part.log_tau,
            state=part.state,
            in_set=part.state != "none" and part.family not in own.refused_by,
            margin=Bounds.at(difference(part.log_joint, part.log_tau)),
        )
        for part in read.families
    )
    return RereadStep(
        index=read.index,
        token_id=read.token_id,
        token=step.token,
        mode=stored.mode,
        log_p_fused=Bounds.at(read.log_p_fused),
        log_tau=read.log_tau,
        state=read.state,
        in_set=own.certified,
        set_size=Bounds.at(read.set_size),
        certified_mass=Bounds.at(read.certified_mass),
        margin=Bounds.at(read.diagnostics.margin),
        kl_fused_masked=Bounds.at(read.diagnostics.kl_fused_masked),
        fallback=read.fallback,
        policy_token_id=read.policy_token_id,
        policy_token=read.policy_token,
        changed=read.policy_token_id != step.policy_token_id,
        families=families,
        step=read,
    )


def _with(policy: Policy, lam: float | None, alpha: float | None, calibration: AnyCalibration | None) -> Policy:
    """The policy with what is given in place of its own."""
    if lam is None and alpha is None and calibration is None:
        return policy
    if isinstance(policy, CoftPolicy):
        return _changed(policy, Calibration, lam, alpha, calibration)
    if isinstance(policy, FactorizedCoftPolicy):
        return _changed(policy, FactorizedCalibration, lam, alpha, calibration)
    raise InvalidInputError(
        f"The policy {policy.title} has neither a lambda nor a calibration; read the steps with a COFT policy instead."
    )


def _changed(
    policy: CoftPolicy | FactorizedCoftPolicy,
    kind: type[AnyCalibration],
    lam: float | None,
    alpha: float | None,
    calibration: AnyCalibration | None,
) -> Policy:
    used = policy.calibration if calibration is None else calibration
    if used is not None and not isinstance(used, kind):
        raise InvalidInputError(f"The policy {policy.title} takes a {kind.__name__}, not a {type(used).__name__}.")
    if alpha is not None and used is None:
        raise InvalidInputError("There is no calibration to read another alpha off; choose one.")
    if used is not None and alpha is not None:
        used = used.read(alpha=alpha)
    changes: dict[str, object] = {} if lam is None else {"lam": lam}
    if used is not policy.calibration:
        changes["calibration"] = used
    fixed = {item.name for item in fields(policy) if not item.init}
    if taken := next((name for name in changes if name in fixed), None):
        raise InvalidInputError(f"The policy {policy.title} has no {taken} to change; read the steps with another one.")
    return replace(policy, **changes)  # type: ignore[arg-type]


def _is_mismatched(steps: Sequence[Step], policy: Policy, reader: Policy, fingerprint: Fingerprint | None) -> bool:
    """Whether thresholds of another policy are used knowingly; raises where they are used unawares."""
    if not isinstance(reader, CoftPolicy | FactorizedCoftPolicy) or reader.calibration is None:
        return False
    decoded = fingerprint or _own_fingerprint(policy)
    if decoded is None:
        raise InvalidInputError(
            "These steps were decoded without a calibration, so it is not known which one fits them; pass the "
            "fingerprint of the policy that decoded them."
        )
    used = replace(
        decoded,
        lam=float(reader.lam),
        temperature=float(reader.temperature),
        top_p=float(reader.top_p),
        top_k=int(reader.top_k),
        estimator=reader.calibration.estimator,
        source=reader.calibration.source,
    )
    certificate = compared_certificate(reader.calibration.fingerprint, reader.required(used), reader.accept_mismatch)
    # Steps that were decoded under another policy's calibration stay so unless a fingerprint says what they were.
    return certificate.mismatched or (fingerprint is None and any(step.state == "mismatch" for step in steps))


def _own_fingerprint(policy: Policy) -> Fingerprint | None:
    if isinstance(policy, CoftPolicy | FactorizedCoftPolicy) and policy.calibration is not None:
        return policy.calibration.fingerprint
    return None


def _check_branches(policy: Policy, stored: StoredLogits) -> None:
    names = stored.branches
    if isinstance(policy, FactorizedCoftPolicy):
        fits = all(name.startswith(PREFIX) for name in names[1:])
    elif isinstance(policy, CoftPolicy):
        fits = names == ("factual", "masked")
    else:
        fits = names in (("factual",), ("factual", "masked"))
    if not fits:
        raise StoredLogitsError(
            f"These steps keep the logits of the branches {', '.join(names)}, which the policy {policy.title} does "
            "not read; choose a policy with the same masks."
        )


def _stored_texts(steps: Sequence[Step]) -> TextOf:
    known = {row.token_id: row.token for step in steps for row in step.candidates}
    known |= {token_id: text for step in steps for token_id, text in _tokens(step)}
    return lambda token_id: known.get(token_id, f"<token {token_id}>")


def _tokens(step: Step) -> tuple[tuple[int, str], tuple[int, str]]:
    return (step.token_id, step.token), (step.policy_token_id, step.policy_token)
