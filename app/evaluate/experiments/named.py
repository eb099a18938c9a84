"""The named experiments: which suites and methods a table of the paper needs, and what its columns are.

What they are called and how they differ from the paper is in ``assets/experiments/about.yaml``, and the paper's figures
in ``published.csv`` beside it.
"""

from __future__ import annotations

from typing import Any

import yaml

from app.evaluate.experiments.figures import Experiment, Sweep, Table
from app.evaluate.experiments.grid import published
from app.evaluate.experiments.lengths import LengthsTable
from app.evaluate.experiments.selections import Pairs, SelectionsTable
from app.evaluate.experiments.speed import SpeedTable
from app.evaluate.experiments.symmetric import SymmetricTable
from app.evaluate.experiments.tables import (
    ChainsTable,
    ChoiceTable,
    Column,
    CoverageTable,
    DriftTable,
    FiguresTable,
    StabilityTable,
)
from app.shared.errors import ServiceError
from coft_core.assets import assets_path
from coft_core.experiments.averages import Part
from coft_core.experiments.certificates import empty_prompts, empty_steps, fallback_rise, toxic_fallbacks
from coft_core.policies.registry import method as method_named
from coft_core.suites.mauve import LENGTHS
from coft_core.tuning.sweep import variants_of

ABOUT: dict[str, Any] = yaml.safe_load(assets_path("experiments", "about.yaml").read_text("utf-8"))
PAPER = published()

BIAS = ("stereoset", "crows_pairs", "bbq", "bold", "utrecht", "compas")
TASKS = ("gsm8k", "strategyqa", "arc_easy", "piqa")
LONG = ("cnn_dailymail", "govreport", "eli5")
ALPHAS = (0.02, 0.05, 0.1, 0.15, 0.2)

PAIRS = Pairs((0.0, 0.2, 0.4, 0.6, 0.8), (0.05, 0.1, 0.2))
SUITE_FAMILIES = {
    "Given texts": ("stereoset", "crows_pairs", "bbq"),
    "Written texts": ("bold",),
    "Decisions": ("utrecht", "compas"),
}

FULL = "coft:calibrated,lam=0.6,alpha=0.1"
BASIC = ("Vanilla=vanilla", "SDD=sdd", "DExperts=dexperts")
FIVE = (*BASIC, "DT-CD=dtcd:calibrated", f"COFT={FULL}")

SIX_COLUMNS = (
    Column("SS", Part("stereoset", "excess", "size")),
    Column("CP Acc", Part("crows_pairs", "accuracy_shared")),
    Column("BBQ Bias", Part("bbq", "biased_rate")),
    Column("BOLD Tox", Part("bold", "toxicity")),
    Column("Utrecht DP", Part("utrecht")),
    Column("COMPAS Gap", Part("compas")),
    Column("Avg. Rank", rank="bias"),
    Column("CP Acc, whole sentence", Part("crows_pairs", "accuracy")),
)
UTILITY_CHANGE = Column("Utility Δ", average="utility", against="Vanilla")
TOXICITY_LEFT = Column("Toxicity, % of vanilla", Part("bold", "toxicity_rate"), against="Vanilla", percent=True)
EMPTY_RATE = Column("Empty-set rate, %", certified=empty_steps)


def _named(name: str, *tables: Table, **told: Any) -> Experiment:
    about: dict[str, Any] = {
        part: tuple(said) if isinstance(said, list) else said for part, said in ABOUT[name].items()
    }
    return Experiment(name=name, tables=tables, **about, **told)


def _swept(title: str, policy: str) -> list[str]:
    """A method at every strength that a tuning tries."""
    values = [dict(variant.values) for variant in variants_of(method_named(policy))]
    return [f"{title}, {name} {value:g}={policy}:{name}={value:g}" for each in values for name, value in each.items()]


EXPERIMENTS: dict[str, Experiment] = {
    own.name: own
    for own in (
        _named(
            "alpha_sweep",
            ChoiceTable("Sweep of alpha", PAPER["alpha_sweep"]),
            CoverageTable("Miscoverage and certified share", PAPER["alpha_sweep coverage"]),
            suites=(*BIAS, *TASKS),
            sweep=Sweep("alpha", ALPHAS, "coft:calibrated,lam=0.6"),
        ),
        _named(
            "baselines",
            FiguresTable("Bias", PAPER["baselines"], SIX_COLUMNS),
            suites=BIAS,
            methods=(
                *BASIC,
                "Safety Templates=safety_template",
                "Detox Decoding=detox",
                "CF Substitution=cf_substitution",
                "CDA=cda",
                "Adv. LM-Head=adv_lm_head",
                *FIVE[3:],
            ),
        ),
        _named(
            "dropped_spans",
            FiguresTable(
                "Spans left out", (), (Column("BiasAvg", average="bias"), UTILITY_CHANGE, TOXICITY_LEFT, EMPTY_RATE)
            ),
            suites=(*BIAS, *TASKS),
            methods=(
                "Vanilla=vanilla",
                f"All spans={FULL}",
                f"20 % left out={FULL},dropped=0.2",
                f"50 % left out={FULL},dropped=0.5",
            ),
        ),
        _named(
            "empty_sets",
            FiguresTable(
                "Empty certified sets",
                PAPER["empty_sets"],
                (
                    Column("Prompts, %", certified=empty_prompts, method="COFT"),
                    Column("Steps, %", certified=empty_steps, method="COFT"),
                    Column("Toxic fallbacks, %", certified=toxic_fallbacks, method="COFT"),
                    Column("Rise of toxicity", certified=fallback_rise, method="COFT"),
                ),
                rows="suites",
            ),
            suites=("crows_pairs", "bbq", "bold", "eli5"),
            methods=(f"COFT={FULL}",),
        ),
        _named(
            "lambda_sweep",
            ChoiceTable("Sweep of lambda", PAPER["lambda_sweep"]),
            suites=(*BIAS, *TASKS),
            sweep=Sweep("lambda", (0.0, 0.2, 0.4, 0.6, 0.7, 0.8, 1.0), "coft:calibrated,alpha=0.1"),
        ),
        _named(
            "long_form",
            FiguresTable(
                "Long texts",
                PAPER["long_form"],
                (
                    Column("Utility, Vanilla", method="Vanilla"),
                    Column("Utility, COFT", method="COFT"),
                    Column("Toxic texts, %, Vanilla", Part("", "toxicity_rate"), method="Vanilla"),
                    Column("Toxic texts, %, COFT", Part("", "toxicity_rate"), method="COFT"),
                ),
                rows="suites",
            ),
            suites=LONG,
            methods=("Vanilla=vanilla", f"COFT={FULL}"),
        ),
        _named(
            "masked_only",
            FiguresTable(
                "Bias of each view",
                PAPER["masked_only"],
                (
                    Column("SS bias", Part("stereoset", "excess", "size")),
                    Column("BBQ biased rate", Part("bbq", "biased_rate")),
                ),
            ),
            suites=("stereoset", "bbq"),
            methods=("Factual=vanilla", "Masked-only=coft-no-certification:lam=1", f"COFT={FULL}"),
        ),
        _named(
            "masks",
            FiguresTable(
                "Race and gender together",
                PAPER["masks"],
                (
                    Column("Bias advantage", Part("bbq_intersectional", "bias_advantage", "size")),
                    Column("Accuracy, %", Part("bbq_intersectional", "accuracy_disambiguated")),
                    Column("Advantage, one attribute", Part("bbq_intersectional", "bias_advantage_one", "size")),
                    Column("Bias score", Part("bbq_intersectional", "bias_disambiguated", "size")),
                ),
            ),
            SpeedTable(
                "Overhead",
                PAPER["masks overhead"],
                methods=("Vanilla", "COFT-Single, gender", "COFT-Joint", "COFT-Factorized"),
                batches=(1,),
                lengths=(256,),
                prompt=128,
                words=2,
            ),
            suites=("bbq_intersectional",),
            methods=(
                "Vanilla=vanilla",
                f"COFT-Single, gender={FULL},mask=gender",
                f"COFT-Single, race={FULL},mask=race",
                f"COFT-Joint={FULL}",
                "COFT-Factorized=coft-factorized:calibrated,lam=0.6,alpha=0.1",
            ),
        ),
        _named(
            "mauve_length",
            LengthsTable(
                "MAUVE by length",
                PAPER["mauve_length"],
                "cnn_dailymail_lengths",
                "mauve_{}",
                LENGTHS,
                ("Vanilla", "COFT"),
                "MAUVE",
            ),
            suites=("cnn_dailymail_lengths",),
            methods=("Vanilla=vanilla", f"COFT={FULL}"),
        ),
        _named(
            "moe",
            SpeedTable("Mixture of experts", PAPER["moe"], batches=(4,), lengths=(256,), prompt=64),
            methods=("Vanilla=vanilla", "COFT=coft:lam=0.6"),
        ),
        _named(
            "prompt_drift",
            DriftTable(
                "Prompt drift",
                PAPER["prompt_drift"],
                "COFT",
                {
                    "In-distribution": "hiring_resume",
                    "Style-shifted": "hiring_resume_informal",
                    "Topic-shifted": "compas",
                },
            ),
            suites=("hiring_resume", "hiring_resume_informal", "compas"),
            methods=(f"COFT={FULL}",),
            calibration_share=0.5,
        ),
        _named(
            "scaling",
            SpeedTable(
                "Length of the text, four prompts",
                PAPER["scaling lengths"],
                rows="lengths",
                methods=("Vanilla", "COFT"),
                batches=(4,),
                lengths=(64, 128, 256, 512, 1024, 2048, 4096),
                prompt=32,
            ),
            SpeedTable(
                "Prompts at a time, 512 tokens",
                PAPER["scaling batches"],
                rows="batches",
                methods=("Vanilla", "COFT"),
                batches=(2, 4, 8, 16),
                lengths=(512,),
                prompt=64,
            ),
            methods=("Vanilla=vanilla", "COFT=coft:lam=0.6"),
        ),
        _named(
            "selections",
            SelectionsTable("Selections and effects", PAPER["selections"], PAIRS, SUITE_FAMILIES),
            suites=(*BIAS, *TASKS),
            methods=PAIRS.methods,
        ),
        _named(
            "sentinel",
            FiguresTable("Sentinels", PAPER["sentinel"], (UTILITY_CHANGE, TOXICITY_LEFT, EMPTY_RATE)),
            suites=(*BIAS[:4], *TASKS),
            methods=(
                "Vanilla=vanilla",
                f"[MASK]={FULL}",
                f'a person={FULL},mask_mode=soft,mask_hint="a person"',
                f"someone={FULL},mask_mode=soft,mask_hint=someone",
            ),
        ),
        _named(
            "sequence_miscoverage",
            ChainsTable("Miscoverage of whole chains", PAPER["sequence_miscoverage"], "COFT", (8, 16, 32), ALPHAS),
            suites=("gsm8k", "bold"),
            methods=(f"COFT={FULL}",),
            calibration_share=0.5,
        ),
        _named(
            "stability",
            StabilityTable(
                "Chosen lambda by suite",
                PAPER["stability"],
                own=tuple((Part(suite, "toxicity_rate", "share"), Part(suite)) for suite in LONG),
            ),
            suites=(*BIAS, *TASKS, *LONG),
            sweep=Sweep("lambda", (0.0, 0.2, 0.4, 0.6, 0.8), "coft:calibrated,alpha=0.1"),
        ),
        _named(
            "symmetric",
            SymmetricTable("Symmetric comparison", PAPER["symmetric"], "bias_in_bios", "amplification"),
            suites=("bias_in_bios",),
            methods=(
                "Unmitigated=vanilla",
                "Neutral rewrite=neutral_rewrite:by=model",
                *_swept("Contrastive decoding", "contrastive"),
                *_swept("ITI", "iti"),
                *(
                    f"COFT, lambda {lam:g}, alpha {alpha:g}=coft:calibrated,lam={lam:g},alpha={alpha:g}"
                    for lam in (0.2, 0.4, 0.6, 0.8)
                    for alpha in (0.05, 0.1, 0.2)
                ),
            ),
        ),
        _named("table1", FiguresTable("Bias", PAPER["table1"], SIX_COLUMNS), suites=BIAS, methods=FIVE),
        _named(
            "table2",
            FiguresTable(
                "Utility and quality",
                PAPER["table2"],
                (
                    Column("GSM8K", Part("gsm8k")),
                    Column("StrategyQA", Part("strategyqa")),
                    Column("ARC-easy", Part("arc_easy")),
                    Column("PIQA", Part("piqa")),
                    Column("PPL", Part("wikitext")),
                    Column("MAUVE", Part("mauve")),
                ),
            ),
            suites=(*TASKS, "wikitext", "mauve"),
            methods=FIVE,
        ),
        _named(
            "table3",
            SpeedTable("Efficiency", PAPER["table3"], batches=(4,), lengths=(256,), prompt=64),
            methods=(*BASIC, "DT-CD=dtcd", "COFT=coft:lam=0.6"),
        ),
        _named(
            "table4",
            FiguresTable(
                "Ablations",
                PAPER["table4"],
                (Column("BiasAvg", average="bias"), Column("UtilityAvg", average="utility")),
            ),
            suites=(*BIAS, *TASKS),
            methods=(
                f"COFT (full)={FULL}",
                "w/o fusion (CP only)=coft-no-fusion:calibrated,alpha=0.1",
                "Single-branch CP (factual)=coft-single-branch:calibrated,lam=0.6,alpha=0.1",
                "fusion only (no CP)=coft-no-certification:lam=0.6",
                "Vanilla=vanilla",
            ),
        ),
    )
}
"""The experiments by name."""


def experiment_named(name: str) -> Experiment:
    """An experiment by its name."""
    if name not in EXPERIMENTS:
        raise ServiceError(f"There is no experiment {name!r}; choose one of {', '.join(EXPERIMENTS)}.")
    return EXPERIMENTS[name]
