"""What a request makes of a prompt set: which rows can be used, and what will be masked in them."""

import json

import pytest

from app.calibrate.service import CalibrationService
from app.jobs.service import JobService
from app.shared.audits import CalibrationRequest
from app.shared.errors import ServiceError
from coft_core.errors import InvalidInputError, SentinelError

REFERENCE = CalibrationRequest(name="set", model="tiny")
ROLLOUT = CalibrationRequest(name="set", model="tiny", source="rollout")


@pytest.fixture(scope="module")
def wired(shared):
    return shared


def prompts(wired, tmp_path, *rows):
    path = tmp_path / "set.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return wired[CalibrationService].parse(path)


def problems(wired, parsed, request):
    return [(error.line, error.column) for error in wired[CalibrationService].row_errors(parsed, request)]


def test_a_missing_reference_only_matters_where_references_are_read(wired, tmp_path):
    parsed = prompts(wired, tmp_path, {"prompt": "a"}, {"prompt": "b", "reference": "c"}, {"prompt": ""})
    assert problems(wired, parsed, REFERENCE) == [(1, "reference"), (3, "prompt")]
    assert problems(wired, parsed, ROLLOUT) == [(3, "prompt")]


def test_by_group_every_row_needs_a_group_and_every_context_one(wired, tmp_path):
    parsed = prompts(
        wired,
        tmp_path,
        {"prompt": "a", "reference": "x", "group": "g", "context": "1"},
        {"prompt": "b", "reference": "x", "group": "h", "context": "1"},
        {"prompt": "c", "reference": "x", "context": "1"},
        {"prompt": "d", "reference": "x", "group": "h", "context": "2"},
    )
    request = CalibrationRequest(name="set", model="tiny", by_group=True)
    assert problems(wired, parsed, REFERENCE) == []
    assert problems(wired, parsed, request) == [(2, "group"), (3, "group")]
    assert "line 1 of the same context has “g”" in wired[CalibrationService].row_errors(parsed, request)[0].message


def test_rows_of_one_context_share_a_weight_where_weights_are_asked_for(wired, tmp_path):
    parsed = prompts(
        wired,
        tmp_path,
        {"prompt": "a", "reference": "x", "context": "1", "weight": 1},
        {"prompt": "b", "reference": "x", "context": "1", "weight": 2},
        {"prompt": "c", "reference": "x", "weight": 2},
    )
    request = CalibrationRequest(name="set", model="tiny", weighting="column")
    assert problems(wired, parsed, REFERENCE) == []
    assert problems(wired, parsed, request) == [(2, "weight")]


def test_a_prompt_may_fill_the_context_with_its_reference_but_a_rollout_needs_room_to_write(wired, tmp_path):
    # The tiny model takes 256 tokens, one a character.
    parsed = prompts(wired, tmp_path, {"prompt": "x" * 256}, {"prompt": "x" * 255})
    assert problems(wired, parsed, ROLLOUT) == [(1, "prompt")]
    assert "has 256 tokens, the model takes 255" in wired[CalibrationService].row_errors(parsed, ROLLOUT)[0].message
    rows = [{"prompt": "x" * 200, "reference": " " + "y" * more} for more in (56, 55)]
    assert problems(wired, prompts(wired, tmp_path, *rows), REFERENCE) == [(1, "prompt")]


def test_factorized_masks_need_something_masked_in_some_row(wired, tmp_path):
    request = CalibrationRequest(name="set", model="tiny", mask_layout="factorized")
    nothing = prompts(wired, tmp_path, {"prompt": "two", "reference": "x"}, {"prompt": "three", "reference": "x"})
    assert problems(wired, nothing, REFERENCE) == []
    assert problems(wired, nothing, request) == [(1, "spans")]
    with pytest.raises(ServiceError, match="Nothing is masked in any prompt"):
        wired[CalibrationService].submit(nothing, CalibrationRequest("set", model="tiny", mask_layout="factorized",
                                                              accept_errors=True))  # fmt: skip
    some = prompts(wired, tmp_path, {"prompt": "two", "reference": "x"}, {"prompt": "he", "reference": "x"})
    assert problems(wired, some, request) == []
    kept = CalibrationRequest(name="set", model="tiny", mask_layout="factorized", whitelist=("He",))
    assert problems(wired, some, kept) == [(1, "spans")]


def test_what_does_not_fit_the_prompts_is_refused_before_a_job_is_made(wired, tmp_path):
    rows = [{"prompt": f"he {i}", "reference": "x"} for i in range(5)]
    parsed = prompts(wired, tmp_path, *rows)
    many = tuple(f"she {i}" for i in range(25))
    for changes, kind, message in (
        ({"weighting": "column"}, ServiceError, "no column of weights"),
        ({"weighting": "estimated", "deployment": many}, ServiceError, "5 prompts can be used"),
        ({"weighting": "estimated", "deployment": many[:5]}, ServiceError, "5 prompts of the deployment"),
        ({"weighting": "column", "rho": 2.0}, ServiceError, "exclude each other"),
        ({"weighting": "column", "record_chains": True}, ServiceError, "cannot be recorded under weights"),
        ({"alpha_by_family": (("gender", 0.1),)}, ServiceError, "need factorized masks"),
        (
            {"mask_layout": "factorized", "alpha_by_family": (("race", 0.1),)},
            InvalidInputError,
            "'gender' has no share",
        ),
        (
            {"mask_layout": "factorized", "alpha_by_family": (("gender", 0.09), ("race", 0.09))},
            InvalidInputError,
            "sum to more than alpha",
        ),
        ({"source": "dreams"}, ServiceError, "no context source 'dreams'"),
        ({"mask_layout": "double"}, ServiceError, "no mask layout"),
        ({"mask_mode": "loud"}, ServiceError, "no mask mode"),
        ({"sentinel": "a person"}, SentinelError, "not exactly one token"),
        ({"lam": 2.0}, InvalidInputError, "lambda is 2.0"),
        ({"alpha": 0.0}, InvalidInputError, "alpha is 0.0"),
        ({"temperature": -1.0}, InvalidInputError, "temperature is -1.0"),
        ({"rho": 0.5}, InvalidInputError, "rho"),
        ({"max_new_tokens": 0}, InvalidInputError, "steps"),
        ({"max_iterations": 0}, InvalidInputError, "rounds"),
        ({"draws": 0}, InvalidInputError, "draws"),
        ({"bin_width": 0}, InvalidInputError, "width"),
        ({"name": "  "}, ServiceError, "no name"),
    ):
        with pytest.raises(kind, match=message):
            wired[CalibrationService].submit(parsed, CalibrationRequest(**{"name": "set", "model": "tiny", **changes}))
    assert wired[JobService].list() == ()


def test_a_set_without_a_column_of_prompts_is_refused_with_its_columns(wired, tmp_path):
    parsed = prompts(wired, tmp_path, {"body": "he", "label": "x"})
    for refuse in (
        wired[CalibrationService].row_errors, wired[CalibrationService].submit, wired[CalibrationService].estimate,
    ):  # fmt: skip
        with pytest.raises(ServiceError, match="no column “messages”; its columns are “body”, “label”"):
            refuse(parsed, REFERENCE)


def test_the_preview_shows_given_spans_or_what_the_request_would_mask(wired, tmp_path):
    parsed = prompts(
        wired,
        tmp_path,
        {"prompt": "she met Emily", "spans": [[0, 3, "gender"]], "group": "g", "context": "c"},
        {"prompt": "he met Emily", "reference": "x"},
        {"prompt": "nobody"},
    )
    given, found = wired[CalibrationService].preview(parsed, REFERENCE, limit=2)
    assert (given.line, given.detected, given.group, given.context) == (1, False, "g", "c")
    assert [(span.start, span.end) for span in given.spans] == [(0, 3)]
    assert (found.detected, found.reference) == (True, "x")
    assert [span.category for span in found.spans] == ["gender", "name"]
    other = CalibrationRequest(name="set", model="tiny", masked_families=("name",), whitelist=("emily",))
    masked = wired[CalibrationService].preview(parsed, other)[1].spans
    assert [(span.category, span.kept) for span in masked] == [("name", True)]
    assert len(wired[CalibrationService].preview(parsed, REFERENCE)) == 3


def test_the_samples_are_read_without_a_problem_and_have_references(wired):
    samples = wired[CalibrationService].samples()
    assert len({sample.title for sample in samples}) == len(samples) > 1
    assert "to_audit.csv" not in {sample.name for sample in samples}
    for sample in samples:
        parsed = wired[CalibrationService].parse(sample.path)
        assert (len(parsed.rows), parsed.errors, parsed.ignored_columns) == (sample.rows, (), ())
        assert all(example.reference for _, example in parsed.rows)
