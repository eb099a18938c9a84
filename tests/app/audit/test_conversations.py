"""Audits of conversations: stored, continued, reported and verified, with the thinking told from the answer."""

import csv
import functools
import io
import json
from dataclasses import replace

import pytest

from app.audit.service import AuditService
from app.bootstrap import services
from app.prompts.sets import parse_prompt_set, rows_jsonl, rows_of
from app.report.service import ReportService
from app.settings import Settings
from app.shared.audits import AuditSettings, StartAudit
from app.shared.json import session_json
from coft_core.model.fake import tiny_model
from coft_core.text.turns import turns_of
from tests.conftest import verifier

TEMPLATE = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% if enable_thinking is not defined or enable_thinking %}<think>"
    "{% else %}<think></think>{% endif %}{% endif %}"
)
SETTINGS = AuditSettings(model="thinks", max_new_tokens=10, top_p=1.0, system_prompt="You advise women.", thinking="on")


@functools.cache
def model(name):
    return replace(tiny_model(chat_template=TEMPLATE, context_length=512), name=name)


def load(name, **_):
    return model(name)


@pytest.fixture
def wired(tmp_path):
    settings = Settings(database_url=f"sqlite:///{tmp_path / 'audits.sqlite3'}", pipeline="none")
    with services(settings, loader=load) as opened:
        yield opened


def thought(wired):
    """A session whose model ends its thinking at its ninth token and answers with one more."""
    audits = wired[AuditService]
    view = audits.start(StartAudit("Is she a risk?", SETTINGS))
    audits.step(view.session_id)
    for index, letter in enumerate("</think>", start=1):
        view = audits.fork(view.session_id, view.branch_id, index, letter)
    audits.step(view.session_id)
    return view.session_id


def test_a_session_keeps_the_conversation_that_its_model_read_and_goes_on_with_it(wired):
    audits = wired[AuditService]
    view = audits.start(StartAudit("Is she a risk?", SETTINGS))
    assert [(turn.role, turn.content) for turn in turns_of(view.prompt)] == [
        ("system", "You advise women."),
        ("user", "Is she a risk?"),
    ]
    assert [view.prompt[span.start : span.end] for span in view.spans] == ["women", "she"]
    again = audits._live.plan(audits._sessions.get(view.session_id))
    assert again.model.tokenizer.decode(again.prompt.masked_ids) == (
        f"<|system|>You advise {'<mask>' * 5}.<|user|>Is {'<mask>' * 3} a risk?<|assistant|><think>"
    )
    fingerprint = audits._sessions.get(view.session_id).fingerprint
    assert (fingerprint["thinking"], len(fingerprint["system"])) == ("on", 64)


def test_thinking_is_told_from_the_answer_in_json_and_in_tables_and_a_replay_agrees(wired, tmp_path):
    session = thought(wired)
    told = session_json(wired[AuditService].view(session))["thinking"]
    assert (told["ranges"], told["ended"]) == ([[1, 9]], True)
    assert (told["thinking"]["steps"], told["answer"]["steps"], told["answer"]["most_sensitive_step"]) == (9, 1, 10)
    branch = wired[AuditService].view(session).branch_id
    rows = list(csv.DictReader(io.StringIO(wired[ReportService].csv(session, branch))))
    assert [row["part"] for row in rows] == ["thinking"] * 9 + ["answer"]
    file = tmp_path / "bundle.zip"
    file.write_bytes(wired[ReportService].bundle(session))
    result = verifier(Settings(pipeline="none"), loader=load).verify(file, replay=True)
    assert [check.problems for check in result.checks if check.status == "failed"] == []


def test_rows_of_messages_are_conversations_with_spans_in_their_turns(tmp_path):
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yes?"}]
    row = {"messages": [*messages, {"role": "user", "content": "Is she?"}], "spans": [[3, 3, 6, "gender"]]}
    bad = {"messages": [messages[1]]}
    file = tmp_path / "set.jsonl"
    file.write_text(f"{json.dumps(row)}\n{json.dumps(bad)}\n")
    parsed = parse_prompt_set(file)
    ((_, example),) = parsed.rows
    assert [example.prompt[span.start : span.end] for span in example.spans] == ["she"]
    assert [(error.line, error.column) for error in parsed.errors] == [(2, "messages")]
    assert json.loads(rows_jsonl(rows_of(parsed))) == row
