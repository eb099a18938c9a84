"""The settings of an audit as the command line's options say them."""

from __future__ import annotations

import argparse
import json

from app.bootstrap import Services
from app.cli_options import EMBEDDED, calibration_id, masked
from app.services.errors import ServiceError
from app.services.known_policies import FACTORIZED, fitted, parameter_values, policy_info
from app.services.views import AuditSettings, Span, replace
from app.services.views.audits import ParameterValue


def audit_settings(wired: Services, options: argparse.Namespace, policy: str | None = None) -> AuditSettings:
    """The settings that the options ask for, with their masking, for one of the policies; the first if None."""
    chosen = policy or named_policies(options)[0]
    settings = AuditSettings(
        model=options.model,
        policy="coft" if chosen == FACTORIZED else chosen,
        lam=options.lam,
        alpha=options.alpha,
        calibration_id=_calibration_id(wired, options, chosen),
        temperature=options.temperature,
        top_p=options.top_p,
        top_k=options.top_k,
        greedy=options.greedy,
        seed=options.seed,
        max_new_tokens=options.steps,
        proceed_uncertified=options.proceed_uncertified,
        group=options.group,
    )
    own = fitted(masked(settings, wired, options), chosen)
    if options.tuned and own.policy != "vanilla":
        own = wired.tunings.applied(own)
    given = dict(own.parameters) | dict(_parameters(options, chosen))
    return replace(own, parameters=tuple(given.items()))


def _calibration_id(wired: Services, options: argparse.Namespace, policy: str) -> int | None:
    """The calibration that was asked for; the embedded one only where it can fit, which the session then says."""
    if options.calibration == "none":
        return None
    if options.calibration != EMBEDDED:
        return calibration_id(wired, options.calibration, options.model)
    embedded = any(item.embedded for item in wired.calibrations.list(options.model))
    return calibration_id(wired, EMBEDDED, options.model) if embedded and policy == "coft" else None


def spans_of(text: str) -> tuple[Span, ...]:
    """Spans from JSON; raises ServiceError where it is none."""
    try:
        items = json.loads(text)
        return tuple(Span(int(i[0]), int(i[1]), str(i[2]) if len(i) > 2 else "other") for i in items)
    except (json.JSONDecodeError, TypeError, ValueError, IndexError, KeyError) as error:
        raise ServiceError(
            "--spans is not a JSON list of [start, end, category], e.g. '[[35, 37, \"gender\"]]'."
        ) from error


def named_policies(options: argparse.Namespace) -> list[str]:
    """The policies that were named, all of them known; a policy that is not named has no parameters."""
    names = [name.strip() for name in str(options.policy).split(",")]
    chosen = [name if name == FACTORIZED else policy_info(name).key for name in names]
    for name, _, _ in _given(options):
        if name and name not in chosen:
            raise ServiceError(f"--set names the policy {name!r}, which --policy does not; name it there too.")
    return chosen


def _given(options: argparse.Namespace) -> list[tuple[str, str, str]]:
    """Policy (empty for the only one), parameter and value of each ``--set``."""
    found = []
    for text in getattr(options, "set", ()):
        name, equals, value = text.partition("=")
        policy, _, parameter = name.strip().rpartition(".")
        if not equals or not parameter:
            raise ServiceError(f"--set {text!r} is no NAME=VALUE; write, for instance, --set strength=2.")
        found.append((policy, parameter, value))
    return found


def _parameters(options: argparse.Namespace, policy: str) -> tuple[tuple[str, ParameterValue], ...]:
    """The parameters that were set for a policy; several values of one name are the lines of a list."""
    given: dict[str, list[str]] = {}
    several = len(named_policies(options)) > 1
    for name, parameter, value in _given(options):
        if not name and several:
            raise ServiceError(f"Several policies are named; write --set POLICY.{parameter}={value}.")
        if name in ("", policy):
            given.setdefault(parameter, []).append(value)
    info = policy_info("coft" if policy == FACTORIZED else policy)
    return parameter_values(info, {name: "\n".join(values) for name, values in given.items()})
