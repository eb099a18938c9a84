"""What the compare page says of chains: names that tell apart, true sentences, and figures that agree with steps."""

import math
from dataclasses import replace

import pytest

from app.compare.chains import ChainSummary, Comparison, PairComparison, align, beside, first_divergence
from app.compare.charts import changed_figure
from app.compare.page import LiveChains
from app.compare.words import (
    cell,
    chain_names,
    chains_from,
    comparison_message,
    differences_table,
    memory,
    row_sentences,
    summary_rows,
)
from app.compare.words import compared_columns_from as columns_from
from app.shared.audits import AuditSettings, AuditView, MaskPiece, MaskPreview
from app.shared.errors import ServiceError
from coft_core.decode.cost import Footprint
from coft_core.types import Candidate
from db.chains import BranchOutline
from tests.records import NOW, SUMMARY, make_step

VANILLA = AuditSettings(policy="vanilla")
COFT = AuditSettings(calibration_id=1)
TEXTS = ([" The", " Latino", " driver", "."], [" The", " driver", " left", "."])


def chain(number, tokens, settings=COFT, **changes):
    calibrated = settings.calibration_id is not None
    preview = MaskPreview((MaskPiece("Who?", False),), 1, 0, (), ("factual", "masked"))
    inside = {name: changes.pop(name) for name in list(changes) if name in AuditView.__dataclass_fields__}
    view = AuditView(
        session_id=number, branch_id=10 * number, name=f"audit {number}", settings=settings, model="demo",
        certificate="certified" if calibrated else "uncertified: no calibration", finished="length", prompt="Who?",
        steps=tuple(make_step(index, token, None if calibrated else "none") for index, token in enumerate(tokens)),
        spans=(), calibration=SUMMARY if calibrated else None, warnings=(), preview=preview,
        branches=(BranchOutline(10 * number, None, None, None, "main"),), fingerprint_digest="", user_list="", bins=(),
        created_at=NOW, updated_at=NOW,
    )  # fmt: skip
    numbers = {"certified": None, "fallbacks": None, "overruled": None, "mean_log_ratio": 0.25} | changes
    return ChainSummary(replace(view, **inside), **numbers)


def changed(own, **changes):
    """A chain whose session says something else."""
    return replace(own, view=replace(own.view, **changes))


def comparison(*chains):
    tokens = [[step.token_id for step in own.steps] for own in chains]
    names = ("policy", "lam", "calibration_id", "greedy")
    pairs = []
    for place, other in enumerate(tokens[1:], 1):
        differ = tuple((name, "", "") for name in names
                       if getattr(chains[0].settings, name) != getattr(chains[place].settings, name))  # fmt: skip
        pairs.append(PairComparison(place, align(tokens[0], other), first_divergence(tokens[0], other), False, differ))
    return Comparison(chains, tuple(pairs), (), beside(len(tokens[0]), [pair.rows for pair in pairs]))


@pytest.fixture
def both():
    return comparison(chain(1, TEXTS[0], VANILLA), chain(2, TEXTS[1]))


def test_names_say_no_more_than_what_tells_columns_apart():
    vanilla, coft = chain(1, TEXTS[0], VANILLA), chain(2, TEXTS[1])
    assert chain_names([vanilla, coft]) == ["Vanilla", "COFT"]
    strong = chain(3, TEXTS[1], replace(COFT, lam=1.0))
    assert chain_names([vanilla, coft, strong]) == ["Vanilla", "COFT (λ 0.60)", "COFT (λ 1.00)"]
    again = chain(4, TEXTS[1], replace(COFT, lam=1.0, seed=3))
    assert chain_names([coft, strong, again]) == ["COFT (λ 0.60)", "COFT (λ 1.00, seed 0)", "COFT (λ 1.00, seed 3)"]
    assert chain_names([coft, chain(9, TEXTS[1])]) == ["COFT (session 2)", "COFT (session 9)"]
    fork = BranchOutline(21, 20, 1, " he", " he")
    assert chain_names([coft, changed(coft, branch_id=21, branches=(fork,))]) == ["main", "2 he"]
    twin = replace(fork, id=22)
    twins = [changed(coft, branch_id=own.id, branches=(fork, twin)) for own in (fork, twin)]
    assert chain_names(twins) == ["2 he (21)", "2 he (22)"]


def test_a_token_that_certification_refuses_is_said_to_be_left_out_for_that_reason():
    first, other = chain(1, [" The"], VANILLA), chain(2, [" They"])
    step = other.steps[0]
    refused = Candidate(
        first.steps[0].token_id, " The", math.log(0.38), math.log(0.05), math.log(0.12), certified=False
    )
    with_refused = changed(other, steps=(replace(step, candidates=(refused, *step.candidates)),))
    (said,) = row_sentences(comparison(first, with_refused), ["Vanilla", "COFT"])
    assert "“The” has 0.38, and 0.05 with the attribute masked, under the threshold 0.060: COFT leaves it out." in said
    drawn = changed(other, steps=(replace(step, candidates=(replace(refused, certified=True), *step.candidates)),))
    (said,) = row_sentences(comparison(first, drawn), ["Vanilla", "COFT"])
    assert "leaves it out" not in said
    assert "goes from 0.38 to 0.05" in said


def test_a_message_holds_every_token_once_every_row_and_the_figures_that_are_known(both):
    message = comparison_message(both)
    assert [[own["t"] for own in column["cells"]] for column in message["columns"]] == [list(text) for text in TEXTS]
    assert message["rows"] == [
        [[0, 0], [0, 0]], [[1, None], [1, 1]], [[2, 1], [0, 0]], [[None, 2], [0, 1]], [[3, 3], [0, 0]],
    ]  # fmt: skip
    assert len(message["say"]) == len(message["rows"])
    shown = cell(both.chains[1].steps[1])
    assert (shown["rt"], [row[0] for row in shown["rows"] if row[7]]) == ("+0.89", ["driver"])
    assert cell(both.chains[1].steps[1], own_model=True)["v"] == [None, None]
    known = replace(both.chains[1], footprint=Footprint((10, 12), (1000, 1000), 5_000_000, 2_500_000))
    summary = {title: row for title, *row in summary_rows(comparison(both.chains[0], known), ["Vanilla", "COFT"])}
    assert summary["Aligned steps that differ from Vanilla"] == ["–", "2"]
    assert summary["Keys and values, computed"] == ["–", "30 kB"]
    assert not any("measured peak" in title for title in summary)
    assert [memory(size) for size in (None, 0, 900, 4_200_000, 3_000_000_000)] == ["–", "–", "1 kB", "4.2 MB", "3.0 GB"]
    (line,) = (trace for trace in changed_figure(both, ["Vanilla", "COFT"]).data if trace.name)
    assert list(line.y) == [0, 1, 1, 2, 2]
    third = chain(3, TEXTS[1], replace(COFT, lam=0.9, calibration_id=None))
    table = differences_table(comparison(*both.chains, third), ["Vanilla", "COFT", "<b>"])
    assert all(said in table for said in ("0.9", "Ward notes, reference", "&lt;b&gt;"))


def test_frames_align_what_has_grown_and_repeat_the_tokens_of_the_frame_before():
    empty = comparison(chain(1, []), chain(2, [], VANILLA))
    live = LiveChains(empty)
    assert live.frame() == {"kind": "frame", "columns": [[], []], "rows": []}
    live.add(1, make_step(0, " The"))
    first = live.frame()
    live.add(2, make_step(0, " The"))
    second = live.frame()
    assert [[own["t"] for own in column] for column in first["columns"]] == [[" The"], []]
    assert [[own["t"] for own in column] for column in second["columns"]] == [[" The"], [" The"]]
    assert (first["rows"], second["rows"]) == ([[[0, None], [1, 1]]], [[[0, 0], [0, 0]]])
    assert [[own["t"] for own in column] for column in live.frame()["columns"]] == [[], [" The"]]


def test_columns_from_the_page_become_settings_and_what_is_no_number_is_named():
    shared = {
        "model": "demo", "max_new_tokens": "12", "seed": "3", "temperature": "1", "top_p": "0.9", "top_k": "0",
        "greedy": "yes",
    }  # fmt: skip
    given = {"policy": "coft", "lam": "0.5", "alpha": "0.2", "calibration": "4", "layout": "joint", "proceed": True}
    (made,) = columns_from(shared, [given])
    assert (made.lam, made.alpha, made.calibration_id, made.max_new_tokens, made.seed) == (0.5, 0.2, 4, 12, 3)
    assert made.greedy
    assert made.proceed_uncertified
    assert columns_from(shared, [{**given, "calibration": "0"}])[0].calibration_id is None
    steered = {"policy": "dexperts", "layout": "joint", "parameters": {"weight": "3"}}
    (made,) = columns_from(shared, [{**steered, "calibration": "4", "lam": ""}])
    assert (made.parameters, made.calibration_id, made.lam) == ((("weight", 3.0),), None, AuditSettings().lam)
    with pytest.raises(ServiceError, match="Column 2: Weight is 99"):
        columns_from(shared, [given, {**steered, "parameters": {"weight": 99}}])
    with pytest.raises(ServiceError, match="The lambda of column 2 cannot be"):
        columns_from(shared, [given, {**given, "lam": ""}])
    with pytest.raises(ServiceError, match="The number of steps cannot be"):
        columns_from({**shared, "max_new_tokens": "1.5"}, [given])
    assert chains_from([[1, 7], [2, None]]) == ((1, 2), (7, None))
