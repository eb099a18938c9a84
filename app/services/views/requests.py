"""What pages and commands ask of calibrations."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CalibrationRequest:
    """A request to calibrate on a parsed prompt set.

    Attributes:
        name: Name of the run.
        model: Model to calibrate.
        lam: Fusion weight.
        alpha: Risk level.
        estimator: ``hierarchical``, ``one_per_context`` or ``pooled``.
        temperature: Sampling temperature.
        top_p: Nucleus mass.
        top_k: Tokens kept.
        sentinel: Sentinel text; None takes the model's own.
        seed: Seed of the split.
        verification_share: Share of the contexts kept apart to check the result.
        accept_errors: Go on with the good rows although others cannot be used.
        masked_families: Families whose detected spans are masked; None takes the program's own choice.
        user_list_id: Word list whose terms win over what is detected; None uses none.
        source: ``reference`` (the prompts' own continuations) or ``rollout`` (what the policy itself writes).
        draws: Draws of ``one_per_context`` that are averaged.
        by_group: Keep the rows' groups, so that each group can have thresholds of its own.
        mask_layout: ``joint`` (one masked branch) or ``factorized`` (one for each attribute family). A single
            attribute is ``joint`` with one entry in ``masked_families``.
        alpha_by_family: With factorized masks, (family, its share of alpha); None shares alpha out equally.
        mask_mode: ``hard`` (sentinels) or ``soft`` (a neutral hint).
        mask_hint: Hint of the soft mask; None takes the usual one.
        whitelist: Terms that are never masked; part of the policy.
        bin_width: Steps that share a threshold, beyond the first where bins widen.
        max_position: Steps beyond are tied to the last bin.
        max_new_tokens: Steps of a rollout, or of a recorded chain, at most.
        tolerance: Largest change of any bin's tau at which rollouts count as settled.
        max_iterations: Rounds of rollouts at most.
        record_chains: Also record what the calibrated policy writes on these prompts, so that drift can be measured.
        rho: Bound on the density ratio of the prompts that will be audited; 1 assumes that they are like these.
        weighting: ``none``, ``column`` (the rows' own weights) or ``estimated`` (from ``deployment``).
        deployment: Prompts like those that will be audited; needed to estimate weights.
        certified_in: ``both`` readings, as COFT certifies, or the ``factual`` one alone, for methods of one branch;
            lambda and masks have no say in the latter.
        bin_spacing: ``widening``: steps 1, 2, 3-4, 5-8, then bins of ``bin_width``; ``even``: all of ``bin_width``, as
            in the paper.
        prompt_format: As in an audit's settings: ``auto``, ``chat`` or ``plain``.
        chat_date: As in an audit's settings; None takes the moment at which the calibration is asked for.
    """

    name: str
    model: str = "demo"
    lam: float = 0.6
    alpha: float = 0.1
    estimator: str = "hierarchical"
    temperature: float = 1.0
    top_p: float = 0.9
    top_k: int = 0
    sentinel: str | None = None
    seed: int = 0
    verification_share: float = 0.25
    accept_errors: bool = False
    masked_families: tuple[str, ...] | None = None
    user_list_id: int | None = None
    source: str = "reference"
    draws: int = 1
    by_group: bool = False
    mask_layout: str = "joint"
    alpha_by_family: tuple[tuple[str, float], ...] | None = None
    mask_mode: str = "hard"
    mask_hint: str | None = None
    whitelist: tuple[str, ...] = ()
    bin_width: int = 8
    max_position: int = 256
    max_new_tokens: int = 64
    tolerance: float = 0.01
    max_iterations: int = 4
    record_chains: bool = False
    rho: float = 1.0
    weighting: str = "none"
    deployment: tuple[str, ...] = ()
    certified_in: str = "both"
    bin_spacing: str = "widening"
    prompt_format: str = "auto"
    chat_date: str | None = None


@dataclass(frozen=True, slots=True)
class ReadingRequest:
    """How to read a finished calibration, without the model; what is None stays as calibrated.

    Attributes:
        alpha: Risk level.
        estimator: Threshold estimator.
        bin_width: Steps per position bin.
        max_position: Steps with bins of their own.
        draws: Draws of ``one_per_context`` that are averaged.
        rho: Density-ratio bound; it takes the place of weights.
        group: The group whose own thresholds are read; None reads all contexts together.
        family: With factorized masks, the family whose bins are shown; None shows the first.
        alpha_by_family: With factorized masks, (family, its share of alpha).
        bin_spacing: ``widening`` or ``even`` position bins.
    """

    alpha: float | None = None
    estimator: str | None = None
    bin_width: int | None = None
    max_position: int | None = None
    draws: int | None = None
    rho: float | None = None
    group: str | None = None
    family: str | None = None
    alpha_by_family: tuple[tuple[str, float], ...] | None = None
    bin_spacing: str | None = None
