"""Reading prompt sets: formats, columns, and what is wrong with a row."""

import json

import pytest

from app.prompts.sets import grouping_note, parse_prompt_set
from app.shared import files as uploads
from app.shared.errors import ServiceError
from coft_core.conformal.split import context_numbers


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
    assert parsed.columns == ("prompt", "reference", "spans", "group")
    assert dict(parsed.mapping) == {name: name for name in parsed.columns}
    assert (first.spans[0].start, first.spans[0].end, first.spans[0].category) == (0, 2, "gender")
    assert second.spans is None
    assert second.group is None


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
    assert [line for line, _, _ in found] == [3, 4, 5, 6, 7, 8, 11, 12]
    columns = [column for _, column, _ in found]
    assert columns == ["prompt", "spans", "spans", "spans", "prompt", "row", "spans", "spans"]
    messages = [message for _, _, message in found]
    assert messages[0] == "is empty"
    assert messages[1] == "ends at 99, the prompt has 3 characters"
    assert "caste" in messages[3]
    assert messages[4] == "same prompt and reference as line 2"
    parsed = parse_prompt_set(write(tmp_path, text))
    assert [line for line, _ in parsed.rows] == [2, 9]
    assert parsed.total == 10


def test_a_file_that_cannot_be_used_is_refused_in_one_sentence(tmp_path):
    for content, name, message in (
        ("", "set.csv", "no rows"), ("prompt,reference\n", "set.csv", "no rows"), ("", "set.jsonl", "no rows"),
        ("prompt,prompt\na,b\n", "set.csv", "twice"), ("prompt\na\n", "set.xlsx", "neither CSV nor JSONL"),
        (b"prompt,reference\na,\xff\xfe\n", "set.csv", r"not UTF-8 \(line 2\)"),
        ("prompt,reference\na,b\n".encode("utf-16"), "set.csv", "not UTF-8"),
        ("prompt,a\ab\nx,y\n", "set.csv", r"U\+0007"),
        (",".join(["prompt", *(f"c{n}" for n in range(200_000))]) + "\nx\n", "set.csv", "200,001 .* 1000"),
    ):  # fmt: skip
        with pytest.raises(ServiceError, match=message) as caught:
            parse_prompt_set(write(tmp_path, content, name))
        assert "\n" not in str(caught.value)


def test_a_file_over_the_limit_is_refused_unread(tmp_path):
    path = write(tmp_path, b"")
    with path.open("r+b") as file:
        file.truncate(100_000_000)
    with pytest.raises(ServiceError, match=r"100 MB .* 20 MB"):
        parse_prompt_set(path)


def test_contexts_are_text_or_whole_numbers_and_weights_are_numbers_above_zero(tmp_path):
    lines = [
        {"prompt": "a", "context": 7, "weight": 0.5}, {"prompt": "b", "context": " seven ", "weight": "2"},
        {"prompt": "c", "context": [7], "weight": 1}, {"prompt": "d", "weight": 0}, {"prompt": "e", "weight": "much"},
        {"prompt": "f", "weight": float("nan")}, {"prompt": "g", "weight": True}, {"prompt": "h"},
    ]  # fmt: skip
    path = write(tmp_path, "".join(json.dumps(line) + "\n" for line in lines), "set.jsonl")
    parsed = parse_prompt_set(path)
    assert [example.context for _, example in parsed.rows] == ["7", "seven"]
    assert parsed.weights == (0.5, 2.0)
    assert [(e.line, e.column) for e in parsed.errors] == [
        (3, "context"),
        *((line, "weight") for line in range(4, 9)),
    ]
    assert "is missing, and other rows have one" in parsed.errors[-1].message


def test_obvious_names_are_guessed_in_any_letter_case_and_the_guess_is_shown(tmp_path):
    parsed = parse_prompt_set(write(tmp_path, "Input , COMPLETION,Context_ID,notes\na,b,c,d\n"))
    assert dict(parsed.mapping) == {"prompt": "Input", "reference": "COMPLETION", "context": "Context_ID"}
    assert parsed.columns == ("Input", "COMPLETION", "Context_ID", "notes")
    assert parsed.ignored_columns == ("notes",)
    example = parsed.rows[0][1]
    assert (example.prompt, example.reference, example.context) == ("a", "b", "c")


def test_columns_can_be_chosen_and_a_field_can_be_read_from_none(tmp_path):
    path = write(tmp_path, "title,prompt,reference\na,b,c\n")
    parsed = parse_prompt_set(path, columns={"prompt": "title", "reference": ""})
    assert dict(parsed.mapping) == {"prompt": "title"}
    assert (parsed.rows[0][1].prompt, parsed.rows[0][1].reference) == ("a", None)
    assert parsed.ignored_columns == ("prompt", "reference")
    # A column that is asked for one field is not taken for another.
    parsed = parse_prompt_set(write(tmp_path, "prompt,reference\na,b\n"), columns={"prompt": "reference"})
    assert dict(parsed.mapping) == {"prompt": "reference"}


def test_a_choice_of_columns_that_does_not_fit_is_refused(tmp_path):
    for columns, named in (
        ({"prompt": "text", "reference": "text"}, "“text” .* prompt and for reference"),
        ({"prompt": "body"}, "“body” .* prompt .* “text”, “answer”"),
        ({"promt": "text"}, "“promt”"),
    ):
        with pytest.raises(ServiceError, match=named):
            parse_prompt_set(write(tmp_path, "text,answer\na,b\n"), columns=columns)


def test_a_file_without_a_column_of_prompts_is_read_without_rows_so_that_one_can_be_chosen(tmp_path):
    parsed = parse_prompt_set(write(tmp_path, "body,label\na,b\n"))
    assert (parsed.rows, parsed.errors, parsed.total) == ((), (), 1)
    assert parsed.columns == ("body", "label")
    assert "prompt" not in dict(parsed.mapping)


def test_more_rows_than_are_read_are_refused_and_not_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr(uploads, "MOST_ROWS", 3)
    assert parse_prompt_set(write(tmp_path, "prompt\na\nb\nc\n")).total == 3
    with pytest.raises(ServiceError, match="3 rows"):
        parse_prompt_set(write(tmp_path, "prompt\na\nb\nc\nd\n"))


def test_a_control_character_is_refused_with_line_and_column_in_either_format(tmp_path):
    for sign in ("\0", "\b", "\x1b", "\x7f", "\x85"):
        told = f"holds the control character U+{ord(sign):04X} at character 2; remove it"
        assert problems(tmp_path, f"prompt,reference\ngood,x\ngood,a{sign}\n") == [(3, "reference", told)]
        lines = [json.dumps({"prompt": f"a{sign}"}), json.dumps({"prompt": "b", "spans": [[0, 1, f"g{sign}"]]})]
        assert problems(tmp_path, "\n".join(lines), "set.jsonl") == [(1, "prompt", told), (2, "spans", told)]
    # Ends of lines and tabs are none.
    assert problems(tmp_path, 'prompt,reference\n"a\r\nb\tc",d\n') == []


def test_what_is_wrong_with_a_row_is_named_by_line_and_column(tmp_path):
    missing = "is missing: the row has {} cells, the header has 3; leave unused cells empty"
    doubled = "appears twice in the same object; keep one"
    for content, name, wrong in (
        ('prompt,reference\na,b\n"never closed,c\n', "set.csv", [(3, "row", "")]),
        ("prompt,reference,group\na,b,c\nd,e\nf\n", "set.csv",
         [(3, "group", missing.format(2)), (4, "reference", missing.format(1))]),
        ('{"prompt": 3}\nnot json\n[1]\n{"prompt": "a", "group": []}\n', "set.jsonl",
         [(1, "prompt", ""), (2, "row", ""), (3, "row", ""), (4, "group", "")]),
        ('{"prompt": "a", "prompt": "b"}\n{"prompt": "c"}\n{"prompt": "d", "more": [{"x": 1, "x": 1}]}\n', "set.jsonl",
         [(1, "prompt", doubled), (3, "x", doubled)]),
        *((f'{{"prompt": "x"}}\n{{"prompt": "y", "spans": {"[" * deep}{"]" * deep}}}\n', "set.jsonl", [(2, "row", "")])
          for deep in (9, 900, 100_000)),
    ):  # fmt: skip
        found = problems(tmp_path, content, name)
        assert [(line, column) for line, column, _ in found] == [(line, column) for line, column, _ in wrong], content[
            :80
        ]
        assert all(said in told for (_, _, told), (_, _, said) in zip(found, wrong, strict=True)), found


def test_a_set_with_groups_and_no_contexts_is_told_that_each_row_counts_by_itself(tmp_path):
    for content, columns, told, contexts in (
        ("prompt,group\na,women\nb,women\nc,men\n", None, True, 3),
        ("prompt,group,context\na,women,1\nb,women,1\nc,men,2\n", None, False, 2),
        ("prompt,group\na,women\nb,men\n", None, False, 2),
        ("prompt\na\nb\n", None, False, 2),
        # Groups that say what belongs together are read as contexts where that is asked for.
        ("prompt,group\na,ward\nb,ward\nc,school\n", {"context": "group", "group": ""}, False, 2),
    ):
        parsed = parse_prompt_set(write(tmp_path, content), columns=columns)
        assert ("each row counts" in grouping_note(parsed)) == told
        assert len(set(context_numbers([example for _, example in parsed.rows]))) == contexts
