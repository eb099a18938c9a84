"""Prompt sets and calibration runs through the service."""

import pytest

from app.services.errors import ServiceError
from app.services.prompt_sets import parse_prompt_set
from app.services.views import CalibrationRequest
from coft_core.errors import InvalidInputError
from tests.conftest import prompt_set_csv

REQUEST = CalibrationRequest(name="set", model="tiny")


def write(tmp_path, content, name="set.csv"):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def problems(tmp_path, content, name="set.csv"):
    return [(e.line, e.column, e.message) for e in parse_prompt_set(write(tmp_path, content, name)).errors]


def test_a_well_formed_csv_is_read_whole(tmp_path):
    parsed = parse_prompt_set(
        write(tmp_path, 'prompt,reference,spans,group\n"He, too",went,"[[0, 2, ""gender""]]",a\nx y,z,,\n')
    )
    assert parsed.format == "CSV, comma"
    assert parsed.errors == ()
    (line, first), (_, second) = parsed.rows
    assert (line, first.prompt, first.reference, first.group) == (2, "He, too", "went", "a")
    assert (first.spans[0].start, first.spans[0].end, first.spans[0].category) == (0, 2, "gender")
    assert second.spans is None
    assert second.group is None


@pytest.mark.parametrize(("delimiter", "name"), [(";", "semicolon"), ("\t", "tab"), (",", "comma")])
def test_other_delimiters_are_recognised(tmp_path, delimiter, name):
    parsed = parse_prompt_set(write(tmp_path, f"\ufeffprompt{delimiter}reference\r\na{delimiter}b\r\n"))
    assert parsed.format == f"CSV, {name}"
    assert parsed.rows[0][1].reference == "b"


def test_jsonl_is_read_with_spans_as_lists_or_text(tmp_path):
    text = '{"prompt": "he ran", "spans": [[0, 2, "gender"]], "group": 3}\n\n{"prompt": "x", "other": 1}\n'
    parsed = parse_prompt_set(write(tmp_path, text, "set.jsonl"))
    assert parsed.ignored_columns == ("other",)
    assert [line for line, _ in parsed.rows] == [1, 3]
    assert parsed.rows[0][1].group == "3"


def test_row_problems_name_line_and_column_and_do_not_hide_good_rows(tmp_path):
    text = (
        "prompt,reference,spans\n"
        "good,one,\n"
        ",two,\n"
        'bad,three,"[[0, 99, ""gender""]]"\n'
        "bad,four,she;gender\n"
        'bad,five,"[[0, 2, ""caste""]]"\n'
        "good,one,\n"
        "too,many,,cells\n"
        '"two\nlines",six,\n'
        'bad,seven,"[[2, 1, ""gender""]]"\n'
        'bad,eight,"[[0, true]]"\n'
    )
    found = problems(tmp_path, text)
    assert [(line, column) for line, column, _ in found] == [
        (3, "prompt"),
        (4, "spans"),
        (5, "spans"),
        (6, "spans"),
        (7, "prompt"),
        (8, "row"),
        (11, "spans"),
        (12, "spans"),
    ]
    messages = [message for _, _, message in found]
    assert messages[0] == "is empty"
    assert messages[1] == "ends at 99, the prompt has 3 characters"
    assert "caste" in messages[3]
    assert messages[4] == "same prompt and reference as line 2"
    parsed = parse_prompt_set(write(tmp_path, text))
    assert [line for line, _ in parsed.rows] == [2, 9]
    assert parsed.total == 10


def test_jsonl_problems_name_the_line(tmp_path):
    found = problems(tmp_path, '{"prompt": 3}\nnot json\n[1]\n{"prompt": "a", "group": []}\n', "set.jsonl")
    assert [line for line, _, _ in found] == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("content", "name", "message"),
    [
        ("", "set.csv", "no column “prompt”"),
        ("prompt,reference\n", "set.csv", "has no rows"),
        ("text,reference\na,b\n", "set.csv", "no column “prompt”"),
        ("prompt,prompt\na,b\n", "set.csv", "twice"),
        (b"prompt,reference\na,\xff\xfe\n", "set.csv", r"not UTF-8 \(line 2\)"),
        ("prompt,reference\na,b\n".encode("utf-16"), "set.csv", "not UTF-8"),
        ("prompt\na\n", "set.xlsx", "neither CSV nor JSONL"),
        ("", "set.jsonl", "has no rows"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_in_one_sentence(tmp_path, content, name, message):
    with pytest.raises(ServiceError, match=message) as caught:
        parse_prompt_set(write(tmp_path, content, name))
    assert "\n" not in str(caught.value)


def test_a_file_over_the_limit_is_refused_unread(tmp_path):
    path = write(tmp_path, b"")
    with path.open("r+b") as file:
        file.truncate(100_000_000)
    with pytest.raises(ServiceError, match="100 MB and at most 20 MB"):
        parse_prompt_set(path)


def test_an_unclosed_quote_is_a_row_problem(tmp_path):
    assert problems(tmp_path, 'prompt,reference\na,b\n"never closed,c\n')[0][0] == 3


def test_a_calibration_is_stored_with_its_values_and_read_at_another_alpha(wired, tmp_path):
    prompts = wired.calibrations.parse(write(tmp_path, prompt_set_csv()))
    job = wired.jobs.wait(wired.calibrations.submit(prompts, REQUEST))
    assert job.status == "done"
    assert job.progress == 1
    view = wired.calibrations.view(job.result["calibration_id"])
    assert view.summary.contexts + view.coverage[0].contexts == 20
    assert view.bins[0].state == "calibrated"
    assert view.bins[0].contexts == view.summary.contexts
    assert wired.calibrations.view(view.summary.id, alpha=0.3).bins[0].tau >= view.bins[0].tau
    assert wired.calibrations.view(view.summary.id, alpha=0.001).bins[0].state == "uninformative"
    assert sum(len(v) for v in view.log_values.values()) == view.tokens


def test_bins_without_data_stand_in_one_row_and_name_their_lender(wired, tmp_path):
    prompts = wired.calibrations.parse(write(tmp_path, prompt_set_csv()))
    job = wired.jobs.wait(wired.calibrations.submit(prompts, REQUEST))
    last = wired.calibrations.view(job.result["calibration_id"]).bins[-1]
    assert last.state == "inherited"
    assert last.label == "25 and later"
    assert last.inherited_from == "17–24"


def test_bad_rows_stop_a_calibration_unless_the_reviewer_goes_on(wired, tmp_path):
    prompts = wired.calibrations.parse(write(tmp_path, prompt_set_csv() + "only a prompt,,\n" + "x" * 300 + ",y,\n"))
    with pytest.raises(ServiceError, match=r"2 of 42 rows cannot be used, the first on line 42 \(reference is empty\)"):
        wired.calibrations.submit(prompts, REQUEST)
    assert wired.jobs.list() == ()
    accepted = CalibrationRequest(name="set", model="tiny", accept_errors=True)
    assert wired.jobs.wait(wired.calibrations.submit(prompts, accepted)).status == "done"


@pytest.mark.parametrize("change", [{"lam": 2.0}, {"alpha": 0.0}, {"temperature": -1.0}])
def test_settings_outside_their_range_are_refused_before_a_job_is_made(wired, tmp_path, change):
    prompts = wired.calibrations.parse(write(tmp_path, prompt_set_csv()))
    with pytest.raises(InvalidInputError):
        wired.calibrations.submit(prompts, CalibrationRequest(name="set", model="tiny", **change))
    assert wired.jobs.list() == ()


def test_a_cancelled_calibration_stores_nothing(wired, tmp_path):
    prompts = wired.calibrations.parse(write(tmp_path, prompt_set_csv(400)))
    before = wired.calibrations.list("tiny")
    job_id = wired.calibrations.submit(prompts, REQUEST)
    wired.jobs.cancel(job_id)
    assert wired.jobs.wait(job_id).status == "cancelled"
    assert wired.calibrations.list("tiny") == before


def test_the_embedded_calibration_cannot_be_deleted(wired):
    embedded = [c for c in wired.calibrations.list() if c.embedded]
    assert embedded
    with pytest.raises(ServiceError, match="comes with the program"):
        wired.calibrations.delete(embedded[0].id)


def test_a_row_without_a_reference_is_a_problem_for_calibration(wired, tmp_path):
    prompts = wired.calibrations.parse(write(tmp_path, "prompt,reference\na,\nb,c\n"))
    assert [(e.line, e.column, e.message) for e in prompts.errors] == [(2, "reference", "is empty")]
    assert [line for line, _ in prompts.rows] == [3]
