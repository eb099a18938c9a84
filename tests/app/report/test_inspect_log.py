"""Stored sessions as a log of Inspect, read back by Inspect itself."""

import sys

import pytest
from inspect_ai.analysis import samples_df
from inspect_ai.log import read_eval_log

from app.report.inspect_log import HELD, STRONGEST
from app.report.service import ReportService
from app.shared.errors import ServiceError
from coft_core.types import Certificate
from tests.app.report.conftest import PROMPT


@pytest.fixture
def written(audited, tmp_path):
    """A certified session's log."""
    session = audited.sessions["joint"]
    path = audited.wired[ReportService].write(session, "inspect", tmp_path)
    return session, path


def test_a_log_has_a_sample_for_each_branch_and_inspects_data_frame_reads_it_with_its_scores(audited, written):
    session, path = written
    assert path.name == f"coft-audit-session-{session}.eval"
    data = audited.wired[ReportService].data(session)
    log = read_eval_log(str(path))
    assert log.status == "success"
    assert log.eval.model == f"coft/{data.record.model}"
    assert [sample.id for sample in log.samples] == [f"{session}.{branch.id}" for branch in data.branches]
    for sample, branch in zip(log.samples, data.branches, strict=True):
        steps = data.chains[branch.id]
        assert sample.input == PROMPT
        assert sample.metadata["certificate"] == Certificate.read(data.record.certificate).counted(steps).text
        assert [step["token_id"] for step in sample.metadata["steps"]] == [step.token_id for step in steps]
        assert sample.output.metadata["coft"][0]["steps"] == sample.metadata["steps"]
        odds = [item.logprob for item in sample.output.choices[0].logprobs.content]
        assert odds == pytest.approx([step.log_p_fused for step in steps])
        strongest = max(abs(step.diagnostics.log_ratio) for step in steps)
        assert sample.scores[STRONGEST].value == pytest.approx(strongest)
    session, path = written
    data = audited.wired[ReportService].data(session)
    frame = samples_df(str(path))
    assert len(frame) == len(data.branches)
    assert all(PROMPT in text for text in frame["input"])
    assert {f"score_{STRONGEST}", "metadata_certificate", "metadata_lam"} <= set(frame.columns)
    if data.record.certificate == "certified":
        expected = [sum(s.certified for s in data.chains[b.id]) / len(data.chains[b.id]) for b in data.branches]
        assert list(frame[f"score_{HELD}"]) == pytest.approx(expected)


def test_without_inspect_one_sentence_says_what_is_missing(audited, monkeypatch):
    monkeypatch.setitem(sys.modules, "inspect_ai.log", None)
    with pytest.raises(ServiceError, match="pip install inspect-ai"):
        audited.wired[ReportService].content(next(iter(audited.sessions.values())), "inspect")
