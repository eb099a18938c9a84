"""The decoding benchmark runs on a toy in all its parts and prints what it says."""

import json

import pytest

from bench.decode.__main__ import main
from bench.decode.shapes import model_of
from bench.decode.work import work_of


@pytest.fixture(scope="module")
def printed():
    lines = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("builtins.print", lambda *words, **_: lines.append(" ".join(str(word) for word in words)))
        main(["--quick"])
    return lines


@pytest.mark.slow
def test_the_last_line_is_json_with_every_part(printed):
    result = json.loads(printed[-1])
    cells = result["models"]["tiny"]["speeds"]
    assert [cell["batch"] for cell in cells] == [1, 2]
    for cell in cells:
        assert {"coft_over_vanilla", "vanilla_over_generate_sampled", "coft_over_plain_one_batch"} <= set(cell["speed"])
        for ratio in cell["speed"].values():
            assert 0 < ratio["wall_time"]["min"] <= ratio["wall_time"]["median"] <= ratio["wall_time"]["max"]
        assert cell["bandwidth_share"]["vanilla"]["median"] > 0
        assert set(cell["peak_bytes_over_vanilla"].values()) == {None}  # only CUDA tells
    ways = result["models"]["tiny"]["noise"]["ways"]
    assert all(0 <= way["max"] < 1e-3 for way in ways.values())
    assert set(result["models"]["tiny"]["branches"]["time_over_vanilla"]) == {"1", "2", "3", "4"}


@pytest.mark.slow
def test_the_table_has_the_papers_rows_and_columns(printed):
    table = json.loads(printed[-1])["table"]
    assert [line.split(" & ")[0] for line in table["lines"]] == ["Vanilla", "SDD", "DExperts", "DT-CD", "COFT"]
    assert all(line.count("&") == 3 for line in table["lines"])
    assert table["lines"] == printed[-6:-1]


@pytest.mark.parametrize("tokens", [20, 64])
def test_prompts_have_the_asked_length_and_as_many_masked_words_as_families(tokens):
    work = work_of(model_of("tiny", "cpu"), tokens, batch=1, tokens=4, words=3)
    assert len(work.masked.factual_ids) == tokens
    assert len({span.category for span in work.spans}) == 3
    assert work.masked.positions
