"""The calibration guide says what is true: its tables and examples are recomputed, its rules are the program's."""

import csv
import io
import math
import re
from fractions import Fraction
from functools import cache
from pathlib import Path

import numpy as np

from coft_core.calibrate.settings import CalibrationOptions
from coft_core.conformal.bins import PositionBins
from coft_core.conformal.calibration import split_alpha
from coft_core.conformal.coverage import clopper_pearson
from coft_core.conformal.drift import LEAST_BASELINE, RECALIBRATE, WATCH, WATCH_P, WINDOW
from coft_core.conformal.quantile import ESTIMATORS, conformal_rank, coverage_range, effective_size, minimum_contexts
from coft_core.conformal.sequence import union_bound
from coft_core.conformal.shift import EFFECTIVE_FLOOR, LEAST_PROMPTS
from coft_core.types import FAMILIES

ROOT = Path(__file__).resolve().parents[2]
GUIDE = (ROOT / "docs/calibration_guide.md").read_text(encoding="utf-8")
TEXT = " ".join(GUIDE.split())
FIVE, THREE = 0.05, 0.03
SHARE = CalibrationOptions().verification_share
ROUNDS = CalibrationOptions().max_iterations


def table(name):
    """Cells of the marked table, without its header."""
    lines = GUIDE.split(f"<!-- table: {name} -->\n\n")[1].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def percent(share):
    return f"{share:.1%}".replace("%", " %")


def span_of(ends):
    return " to ".join(percent(end) for end in ends)


def realised(alpha, contexts):
    return coverage_range(contexts, conformal_rank(alpha, contexts))


@cache
def from_on(alpha, margin):
    """Number of contexts from which on the range of realised coverage stays within the margin."""

    def within(contexts):
        low, high = realised(alpha, contexts)
        return conformal_rank(alpha, contexts) > 0 and max(1 - alpha - low, high - 1 + alpha) <= margin

    # About twice the number that a normal law asks for, and room for small numbers: beyond it the range only narrows.
    longest = math.ceil(8 * alpha * (1 - alpha) / margin**2 + 4 / alpha)
    last_outside = max((n for n in range(1, longest) if not within(n)), default=0)
    assert last_outside < 0.75 * longest
    return last_outside + 1


@cache
def bring(needed, rounds=1):
    """Prompts from which on at least so many contexts are left for the final thresholds in the worst case."""

    def left(prompts):
        kept = prompts - math.floor(SHARE * prompts)
        return kept - (rounds - 1) * (kept // rounds)

    return max(n for n in range(1, 8 * needed) if left(n) < needed) + 1


def shown(numbers):
    return [str(number) for number in numbers]


def test_the_tables_of_ranges_prompts_and_groups_are_what_the_conformal_law_gives():
    rows = table("contexts")
    assert [float(row[0]) for row in rows] == [0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3]
    for alpha, promised, *rest in rows:
        risk = float(alpha)
        fewest = minimum_contexts(risk)
        assert promised == f"{1 - risk:.0%}".replace("%", " %")
        assert rest == [
            str(fewest),
            span_of(realised(risk, fewest)),
            *shown([from_on(risk, FIVE), from_on(risk, THREE)]),
        ]
    for alpha, *numbers in table("bring"):
        needed = [from_on(float(alpha), margin) for margin in (FIVE, THREE)]
        assert numbers == shown([*(bring(n) for n in needed), *(bring(n, ROUNDS) for n in needed)])
    for contexts, ends in table("apart"):
        assert ends == span_of(clopper_pearson(round(0.9 * int(contexts)), int(contexts)))
    for groups, *numbers in table("groups"):
        each = [minimum_contexts(0.1), from_on(0.1, FIVE), bring(from_on(0.1, FIVE))]
        assert numbers == shown([int(groups) * number for number in each])


def test_the_tables_of_families_ratios_and_chains_are_what_the_program_computes():
    for number, share, fewest, together, precise in table("families"):
        families = int(number)
        risk = split_alpha(0.1, FAMILIES[:families])[FAMILIES[0]]
        assert (float(share), int(fewest)) == (risk, minimum_contexts(risk))
        assert int(together) == families * minimum_contexts(risk)
        assert int(precise) == from_on(risk, THREE / families)
    for rho, level, fewest in table("rho"):
        exact = Fraction("0.1") / Fraction(rho)
        assert (level, int(fewest)) == (f"{float(exact):.3g}", minimum_contexts(exact))
    for steps, level, fewest in table("chain"):
        bound = union_bound(0.1, int(steps), PositionBins())
        assert (float(level), int(fewest)) == (bound.alpha_needed, bound.contexts_needed)
    checked = set(re.findall(r'table\("(\w+)"\)', Path(__file__).read_text(encoding="utf-8")))
    assert set(re.findall(r"<!-- table: (\w+) -->", GUIDE)) == checked


def test_worked_examples_in_the_text_are_computed():
    known = effective_size(np.repeat([1.5, 0.75], [100, 200]))
    heavy = effective_size(np.repeat([10.0, 0.1], [10, 290]))
    assert f"the 300 contexts are worth {known:.0f}" in TEXT
    assert f"the 300 are worth {heavy:.0f}" in TEXT
    assert heavy < EFFECTIVE_FLOOR < known


def test_constants_in_the_text_are_those_of_the_program():
    assert f"at least {LEAST_PROMPTS} (and at least {LEAST_PROMPTS} to calibrate on)" in TEXT
    assert f"effective number is below {EFFECTIVE_FLOOR:.0f}" in TEXT
    assert f"how well the first {WINDOW} tokens are supported" in TEXT
    assert f"Usually {SHARE:.0%}".replace("%", " %") in TEXT
    assert f"At least {LEAST_BASELINE} of them must have {WINDOW} tokens" in TEXT
    assert f"at most {100 / WATCH:.0f} of 100 cases" in TEXT
    assert f"at most {100 / RECALIBRATE:.0f} of 100 cases" in TEXT
    assert f"a risk of {100 * WATCH_P:.0f} in 100" in TEXT
    assert f"with {('no', 'one', 'two', 'three', 'four', 'five')[ROUNDS]} rounds" in TEXT
    assert all(f"| `{estimator}` |" in GUIDE for estimator in ESTIMATORS)
    assert all(f"| {badge} |" in GUIDE for badge in ("fresh", "watch", "recalibrate", "unknown"))
    assert all(f"| {state} |" in GUIDE for state in ("calibrated", "inherited", "uninformative", "fallback"))


def test_the_guide_explains_every_column_of_a_prompt_set():
    for column in ("prompt", "reference", "spans", "group", "context", "weight", "messages"):
        assert f"\n| `{column}` |" in GUIDE, column


def test_the_example_of_every_column_is_the_template_to_download():
    example = re.search(r"```csv\n(.*?)```", GUIDE, re.DOTALL)
    template = (ROOT / "assets/templates/prompt_set.csv").read_text(encoding="utf-8")
    assert list(csv.reader(io.StringIO(example[1]))) == list(csv.reader(io.StringIO(template)))


def test_links_inside_the_guide_lead_to_its_headings():
    anchors = {
        re.sub(r"[^\w\- ]", "", line.lstrip("# ").lower()).replace(" ", "-")
        for line in re.findall(r"(?m)^#+ .*$", GUIDE)
    }
    assert set(re.findall(r"\]\(#([\w-]+)\)", GUIDE)) <= anchors


def test_the_command_in_the_guide_runs_and_prints_the_range_of_its_table(capsys):
    exec(re.search(r'python -c "(from coft_core.*)"', GUIDE)[1], {})
    low, high = map(float, capsys.readouterr().out.strip("()\n").split(","))
    assert span_of((low, high)) in GUIDE
