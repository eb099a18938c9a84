"""Sampled paths through the service: worlds, runs that stop at their decision, what is kept, and paths as audits."""

import csv
import io
import json
from dataclasses import replace

import pytest

import app.paths.service as paths_service
from app.audit.service import AuditService
from app.jobs.service import JobService
from app.paths.operations import list_paths, open_path, sample_paths, sampled_paths, sampling_from_json
from app.paths.questions import reader_of
from app.paths.runs import analysis_of, view_json, view_of
from app.paths.sentences import decided_text, reservations, result_sentences, twins_sentence
from app.paths.service import PathsService
from app.paths.types import PathsRequest, Question
from app.paths.worlds import shown_prompt, worlds_of
from app.report.service import ReportService
from app.shared.audits import AuditSettings, CalibrationRequest
from app.shared.errors import JobCancelled, ServiceError
from coft_core.errors import CalibrationMismatch
from coft_core.paths.question import decided_after
from coft_core.types import Span
from db.types import NotFoundError
from tests.app.conftest import calibrated_on
from tests.app.report.conftest import check_named, failures
from tests.conftest import load_tiny, prompt_set_csv, verifier

SETTINGS = AuditSettings(model="tiny", top_p=1.0, lam=0.25, seed=3, max_new_tokens=4)
PROMPT = "The nurse read her note"
SPANS = (Span(15, 18, "gender"),)
REQUEST = PathsRequest(PROMPT, SETTINGS, SPANS, paths=12)
LETTERS = Question("[a-m]", "[n-z]", regex=True, name="early letters")


@pytest.fixture(scope="module")
def wired(shared):
    return shared


@pytest.fixture(scope="module")
def sampled(wired):
    """Run a request to its end; one that ran under the same conditions already is shown again."""
    views = {}

    def run(request, anew=""):
        if (request, anew) not in views:
            job = wired[JobService].wait(wired[PathsService].submit(request))
            assert job.status == "done", job.error
            views[request, anew] = wired[PathsService].view(job.id)
        return views[request, anew]

    return run


def texts(view):
    return [[path.token_ids for path in item.paths] for item in view.worlds]


def test_the_worlds_are_the_prompt_as_typed_masked_and_exchanged(wired):
    worlds = wired[PathsService].worlds(replace(REQUEST, pronouns=("he", "she")))
    assert [(world.label, world.prompt) for world in worlds] == [
        ("as typed (she)", PROMPT), ("masked", PROMPT), ("he", "The nurse read his note"),
    ]  # fmt: skip
    typed, masked, _ = worlds
    assert [shown_prompt(world) for world in (typed, masked)] == [PROMPT, "The nurse read […] note"]
    assert (typed.key, typed.settings) == ("as typed", SETTINGS)
    assert (masked.settings.policy, masked.settings.lam, masked.settings.calibration_id) == ("coft", 1.0, None)
    prompt = "The Muslim nurse read"
    request = PathsRequest(prompt, SETTINGS, (Span(4, 10, "religion"),), groups=("Sikh",), masked=False)
    assert [world.prompt for world in worlds_of(request, request.spans)] == [prompt, "The Sikh nurse read"]


def test_what_cannot_be_sampled_is_refused_before_a_job_is_begun(wired):
    before = wired[JobService].list("paths")
    for change, why in (
        ({"prompt": " "}, "prompt is empty"),
        ({"paths": 1}, "1 paths"),
        ({"settings": replace(SETTINGS, greedy=True)}, "greedy off"),
        ({"settings": replace(SETTINGS, max_new_tokens=300)}, "300 tokens"),
        ({"alpha": 1.0}, "alpha is 1"),
        ({"as_typed": False, "masked": False}, "No world"),
        ({"spans": ()}, "Nothing"),
        ({"pronouns": ("it",)}, "'it'"),
        ({"groups": ("Sikh",)}, "replaced by a group"),
        ({"question": Question("(", regex=True)}, "regular expression"),
        ({"question": Question(" , ")}, "No word"),
        ({"question": Question("yes", scorer="embedded")}, "one of them"),
    ):
        with pytest.raises(ServiceError, match=why):
            wired[PathsService].submit(replace(REQUEST, **change))
    assert wired[JobService].list("paths") == before


def test_a_world_has_the_same_paths_whatever_others_there_are_and_however_many_come(sampled):
    both = sampled(REQUEST)
    alone = sampled(replace(REQUEST, masked=False, pronouns=("he",), paths=20))
    assert texts(alone)[0][:12] == texts(both)[0]
    first, second = ([path.seed for path in item.paths] for item in both.worlds)
    assert first == second
    assert len(set(first)) == 12


def test_twins_part_only_where_their_worlds_differ_and_the_tables_say_at_which_token(wired, sampled, tmp_path):
    view = sampled(replace(REQUEST, pronouns=("he",), paths=30))
    analysis = analysis_of(view)
    rows = list(csv.DictReader(io.StringIO(wired[PathsService].csv(view.id, "paths"))))
    assert {row["parts_at"] for row in rows[:30]} == {""}
    for apart, told in zip(analysis.apart, view_json(analysis)["twins"], strict=True):
        first, second = (texts(view)[world] for world in (0, apart.world))
        at = [
            next((place for place, pair in enumerate(zip(*twins, strict=True), 1) if len(set(pair)) > 1), None)
            for twins in zip(first, second, strict=True)
        ]
        assert [row["parts_at"] for row in rows[30 * apart.world :][:30]] == ["" if x is None else str(x) for x in at]
        parted = [token for token in at if token is not None]
        assert (told["twins"], told["part"]) == (30, len(parted))
        assert told["part_at"] == {str(token): parted.count(token) for token in sorted(set(parted))}
        # Independent draws of so many ways on are hardly ever the same.
        assert 0 < len([token for token in parted if token == 1]) < 15
        assert str(len(parted)) in twins_sentence(apart)


def test_a_path_that_is_opened_as_an_audit_is_replayed_by_its_verifier(wired, sampled, tmp_path):
    session = wired[PathsService].open_path(sampled(REQUEST).id, 0, 3).session_id
    assert wired[AuditService].view(session).settings.shared_noise
    (tmp_path / "evidence.zip").write_bytes(wired[ReportService].bundle(session))
    found = verifier(wired.settings, loader=load_tiny).verify(tmp_path / "evidence.zip", replay=True)
    assert failures(found) == {}
    assert check_named(found, "Replay on the model").status == "passed"


def test_every_batch_layout_gives_the_same_run(sampled, monkeypatch):
    request = replace(REQUEST, question=LETTERS, alpha=0.3)
    whole = sampled(request)
    monkeypatch.setattr(paths_service, "batch_paths", lambda planned, most: 7)
    parts = sampled(request, anew="in batches of 7")
    assert (texts(parts), [w.outcomes for w in parts.worlds]) == (texts(whole), [w.outcomes for w in whole.worlds])


def test_sampling_stops_at_the_pair_that_decides_and_keeps_no_path_beyond(sampled, monkeypatch):
    """Every path of the prompt as typed is a yes, and none of the masked one."""
    monkeypatch.setattr(paths_service, "reader_of", lambda *_: lambda texts: [next(answers) for _ in texts])
    monkeypatch.setattr(paths_service, "batch_paths", lambda planned, most: 16)
    answers = iter([world == 0 for _ in range(20) for world in (0, 1) for _ in range(16)])
    stopped = sampled(replace(REQUEST, question=LETTERS, paths=200), anew="certain")
    after = decided_after([item.outcomes for item in stopped.worlds], 0.05)
    assert after is not None
    assert after < 16
    assert [len(item.paths) for item in stopped.worlds] == [after, after]
    answers = iter([world == 0 for _ in range(20) for world in (0, 1) for _ in range(16)])
    drawn = sampled(replace(REQUEST, question=LETTERS, paths=20, stop_early=False), anew="certain")
    assert drawn.drawn == 20
    (comparison,) = analysis_of(drawn).comparisons
    assert comparison.decided_after == after
    (sentence,) = result_sentences(analysis_of(stopped))
    for part in ("“as typed” 100 % early letters, “masked” 0 %", "100 points", f"after {after} paths"):
        assert part in sentence
    monkeypatch.undo()
    view = sampled(replace(REQUEST, question=Question("e", name="e"), paths=8))
    (comparison,) = analysis_of(view).comparisons
    assert comparison.decided_after is None
    assert decided_text(view, comparison).startswith("not decided after 8 ")
    unscored = sampled(replace(REQUEST, question=Question("zebra", "yak"), paths=4))
    assert [item.outcomes for item in unscored.worlds] == [(None,) * 4] * 2
    (sentence,) = result_sentences(analysis_of(unscored))
    assert "no path of one of them is scored" in sentence


def test_a_cancelled_run_keeps_the_paths_that_were_drawn(wired, monkeypatch):
    monkeypatch.setattr(paths_service, "batch_paths", lambda planned, most: 5)
    calls = iter(range(100))
    draw = paths_service.sample_paths

    def drawn(*arguments):
        if next(calls) == 3:
            raise JobCancelled
        return draw(*arguments)

    monkeypatch.setattr(paths_service, "sample_paths", drawn)
    run = wired[PathsService].submit(REQUEST)
    job = wired[JobService].wait(run)
    assert job.status == "interrupted"
    view = wired[PathsService].view(run)
    assert [len(item.paths) for item in view.worlds] == [5, 5]
    assert "5 of 12 paths" in reservations(analysis_of(view))[0]
    assert run in [item.id for item in wired[PathsService].list()]


def test_what_was_drawn_is_read_from_the_store_as_it_was_kept(wired, sampled):
    view = sampled(replace(REQUEST, question=LETTERS, alpha=0.3))
    again = view_of(wired[JobService].get(view.id))
    assert again == view
    stored = json.loads(json.dumps(view_json(analysis_of(view)), allow_nan=False))
    assert [len(world["drawn"]) for world in stored["worlds"]] == [view.drawn] * 2
    assert stored["tree"][0]["shares"] == [1.0, 1.0]


def test_any_path_opens_as_an_audit_that_draws_the_same_tokens(wired, sampled):
    view = sampled(replace(REQUEST, pronouns=("he",)))
    for world, number in ((0, 1), (1, 11), (2, 0)):
        opened = wired[PathsService].open_path(view.id, world, number)
        item, path = view.worlds[world], view.worlds[world].paths[number]
        assert opened.same == opened.tokens == len(path.token_ids)
        audit = wired[AuditService].view(opened.session_id)
        assert tuple(step.token_id for step in audit.steps) == path.token_ids
        assert (audit.prompt, audit.settings.seed) == (item.world.prompt, path.seed)
    for world, number in ((0, 12), (3, 0), (-1, 0)):
        with pytest.raises(ServiceError, match=f"no path {number + 1} in a world {world + 1}"):
            wired[PathsService].open_path(view.id, world, number)
    other = wired[JobService].submit("other", "A job of another kind", lambda context: None)
    with pytest.raises(NotFoundError, match="has found anything"):
        wired[PathsService].view(other)


def test_thresholds_are_counted_path_by_path_where_the_policy_certifies(wired, sampled, tmp_path):
    asked = CalibrationRequest(name="set", model="tiny", top_p=1.0, lam=0.25)
    settings = replace(SETTINGS, calibration_id=calibrated_on(wired, tmp_path, prompt_set_csv(), asked))
    view = sampled(replace(REQUEST, settings=settings))
    typed, masked = view.worlds
    assert typed.has_thresholds
    assert not masked.has_thresholds
    assert typed.certificate.startswith("certified")
    audits = wired[AuditService]
    opened = wired[PathsService].open_path(view.id, 0, 0)
    steps = audits.view(opened.session_id).steps
    assert typed.paths[0].held == all(step.certified for step in steps)
    with pytest.raises(CalibrationMismatch):
        wired[PathsService].submit(replace(REQUEST, settings=replace(settings, temperature=0.5)))


def test_the_tables_say_what_the_run_says(wired, sampled):
    view = sampled(replace(REQUEST, question=LETTERS, alpha=0.3))
    tables = {
        name: list(csv.DictReader(io.StringIO(wired[PathsService].csv(view.id, name))))
        for name in ("paths", "estimates", "partings")
    }
    assert len(tables["paths"]) == 2 * view.drawn
    analysis = analysis_of(view)
    for row, found, item in zip(tables["estimates"], analysis.estimates, view.worlds, strict=True):
        outcomes = [path["outcome"] for path in tables["paths"] if path["world"] == item.world.label]
        counts = [outcomes.count(name) for name in ("yes", "no", "unscored")]
        assert [int(row[name]) for name in ("yes", "no", "unscored")] == counts == [found.yes, found.no, found.unscored]
    assert tables["estimates"][1]["against"] == "as typed"
    first, second = (float(row["share"]) for row in tables["estimates"])
    assert float(tables["estimates"][1]["difference"]) == pytest.approx(first - second)
    assert [int(row["paths_first"]) for row in tables["partings"]] == [
        item.visits[0] for item in analysis.apart[0].partings
    ]
    with pytest.raises(ServiceError, match="no table 'trees'"):
        wired[PathsService].csv(view.id, "trees")


def test_of_two_answers_the_one_that_stands_first_decides():
    read = reader_of(Question("approved, granted", "denied"), None)
    given = ["It was granted.", "Denied, then approved", "disapproved", "DENIED"]
    assert read(given) == [True, False, None, False]
    assert reader_of(Question("approved"), None)(given) == [False, True, False, False]
    assert reader_of(Question("Denied", "granted", match_case=True), None)(given) == [False, True, None, None]
    assert reader_of(Question(r"gr\w+", "denied", regex=True), None)(given) == [True, False, None, False]


def test_a_classifier_decides_by_its_threshold():
    scores = {"kind": 0.2, "rude": 0.7}
    scorer = type("Scorer", (), {"score": staticmethod(lambda texts: [scores[text] for text in texts])})()
    assert reader_of(Question(scorer="any", threshold=0.7), scorer)(["kind", "rude"]) == [False, True]
    with pytest.raises(ServiceError, match="threshold is 2"):
        reader_of(Question(scorer="any", threshold=2), scorer)


def test_programs_name_the_options_of_a_run_and_are_told_of_unknown_ones():
    request = sampling_from_json({"tokens": 5, "pronouns": ["he"], "yes": "a", "called": "A", "stop_early": False})
    assert (request.settings.max_new_tokens, request.pronouns, request.stop_early) == (5, ("he",), False)
    assert request.question == Question("a", name="A")
    with pytest.raises(ServiceError, match="no option 'worlds'"):
        sampling_from_json({"worlds": []})


def test_programs_begin_a_run_ask_for_it_and_open_a_path(wired):
    sampling = {"paths": 6, "tokens": 2, "masked": False}
    values = sample_paths.checked(["He is a nurse", sampling, None, {"model": "tiny", "top_p": 1.0}])
    job = wired[JobService].wait(sample_paths.call(wired, **values).id)
    found = sampled_paths.json(sampled_paths.call(wired, job.id))
    assert [len(path["tokens"]) for path in found["worlds"][0]["drawn"]] == [2] * 6
    assert list_paths.json(list_paths.call(wired))[0]["id"] == job.id
    opened = open_path.json(open_path.call(wired, job.id, 1, 6))
    assert (opened["tokens"], opened["same"]) == (2, 2)


PATHS = ("paths", "--prompt", "He is a nurse", "--model", "tiny", "--steps", "3", "--paths", "12", "--top-p", "1")


def test_the_terminal_says_the_result_writes_the_tables_and_shows_past_runs(command, tmp_path):
    asked = ("--pronouns", "she", "--yes", "[a-m]", "--no", "[n-z]", "--regex", "--called", "early")
    code, shown, error = command(*PATHS, *asked, "--out", str(tmp_path))
    assert code == 0, error
    assert shown.splitlines()[1].startswith("“as typed” ")
    assert "decided after" in shown.splitlines()[1]
    for name, rows in (("paths", 36), ("estimates", 3)):
        with (tmp_path / f"{name}.csv").open(encoding="utf-8", newline="") as file:
            assert len(list(csv.DictReader(file))) == rows
    code, listed, _ = command("trees")
    assert "12 of 12 paths in each of as typed, masked, she; done" in listed
    made = json.loads(command(*PATHS, "--without-masked", "--json")[1])
    assert [world["label"] for world in made["worlds"]] == ["as typed"]
    assert made["question"] is None
    assert json.loads(command("trees", str(made["id"]), "--json")[1]) == made
    code, _, error = command(*PATHS, "--pronouns", "it")
    assert (code, "There are no pronouns 'it'" in error) == (1, True)
