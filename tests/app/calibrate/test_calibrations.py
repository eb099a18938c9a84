"""Calibration runs through the service: made, stored, read in every way, weighted, exported and deleted."""

import csv
import io
import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

import coft_core as cc
from app.bootstrap import services
from app.calibrate.operations import calibration_json, drift_json
from app.calibrate.readings import CalibrationReadings
from app.calibrate.service import CalibrationService
from app.jobs.service import JobService
from app.prompts.sets import listed_samples, parse_prompt_set, shipped_prompts
from app.settings import Settings
from app.shared.audits import CalibrationRequest, ReadingRequest
from app.shared.calibrations import EMBEDDED_CALIBRATION, CalibrationStore, drift_of
from app.shared.errors import ServiceError
from app.shared.web import examples, phantom_examples
from coft_core.assets import assets_path
from coft_core.conformal.drift import WINDOW
from coft_core.errors import InvalidInputError
from db.chains import SessionBeginning, StepSupport
from db.types import StoreError
from tests.app.conftest import calibrated_on
from tests.conftest import load_tiny, prompt_set_csv

REQUEST = CalibrationRequest(name="set", model="tiny", bin_spacing="widening")
CHAINS = {"by_group": True, "record_chains": True, "max_new_tokens": 5, "verification_share": 0.45}
SAID = [{"prompt": f"He said {i}"} for i in range(40)]
ROLLOUT = {"source": "rollout", "max_new_tokens": 6, "max_iterations": 2}


def write(tmp_path, content, name="set.csv"):
    path = tmp_path / name
    path.write_text(content)
    return path


def rows_csv(rows):
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def grouped_rows(count=60):
    """Two groups, each row a context of its own, in which either gender or race is named."""
    who = ("He", "The Black man")
    return [
        {"prompt": f"{who[i % 2]} said number {i} to them,", "reference": f"and wrote {i} down", "group": "ab"[i % 2],
         "weight": 1 + i % 2}
        for i in range(count)
    ]  # fmt: skip


@pytest.fixture(scope="module")
def wired(shared):
    return shared


@pytest.fixture(scope="module")
def made(wired, tmp_path_factory):
    """Calibrate on rows, once for each request, and give the view; what a test changes has a name of its own."""
    folder, kept = tmp_path_factory.mktemp("sets"), {}

    def calibrate(rows=None, **changes):
        asked = (rows_csv(rows) if rows else prompt_set_csv(), replace(REQUEST, **changes))
        if asked not in kept:
            kept[asked] = wired[CalibrationService].view(calibrated_on(wired, folder, *asked))
        return kept[asked]

    return calibrate


def test_a_calibration_is_stored_with_its_values_and_read_at_another_alpha(wired, made):
    view = made()
    assert view.summary.contexts + view.coverage[0].contexts == 20
    assert view.bins[0].state == "calibrated"
    assert view.bins[0].contexts == view.summary.contexts
    fine = wired[CalibrationService].view(view.summary.id, ReadingRequest(alpha=0.001))
    assert fine.bins[0].state == "uninformative"
    assert fine.smallest_alpha == view.smallest_alpha
    assert fine.smallest_alpha.overall == pytest.approx(1 / (view.summary.contexts + 1))
    assert sum(len(v) for v in view.log_values.values()) == view.tokens
    assert view.sequence.contexts == view.summary.contexts
    assert (view.families, view.family, view.groups, view.group) == ((), None, (), None)
    last = view.bins[-1]
    assert (last.state, last.label, last.inherited_from) == ("inherited", "25 and later", "17–24")
    for asked in (ReadingRequest(family="gender"), ReadingRequest(alpha_by_family=(("gender", 0.1),))):
        with pytest.raises((ServiceError, InvalidInputError), match="one masked branch"):
            wired[CalibrationService].view(view.summary.id, asked)
    taus = [
        wired[CalibrationService].view(view.summary.id, ReadingRequest(alpha=a)).bins[0].tau for a in (0.4, 0.3, 0.2)
    ]
    assert all(larger >= smaller for larger, smaller in pairwise([*taus, view.bins[0].tau]))


def test_every_reading_is_that_of_the_calibration_itself(wired, made):
    view = made(estimator="one_per_context", draws=3)
    stored = wired[CalibrationService].load(view.summary.id)
    assert view.reading == stored.reading
    for asked in (
        {"alpha": 0.2}, {"estimator": "pooled"}, {"bin_width": 4, "max_position": 16}, {"bin_spacing": "even"},
        {"bin_spacing": "finest", "alpha": 0.3}, {"draws": 7}, {"rho": 2.0}, {"alpha": 0.3, "rho": 1.5, "bin_width": 1},
    ):  # fmt: skip
        read, expected = wired[CalibrationService].view(view.summary.id, ReadingRequest(**asked)), stored.read(**asked)
        assert read.reading == expected.reading
        assert read.notes == expected.notes
        assert read.smallest_alpha == expected.smallest_alpha()
        assert read.sequence == expected.sequence()
        by_step = {entry.first_step: entry for entry in read.bins}
        for entry in expected.bins:
            if entry.contexts:
                shown = by_step[entry.first_step]
                assert (shown.tau, shown.state, shown.rank) == (entry.tau, entry.state, entry.rank)
    assert wired[CalibrationService].view(view.summary.id) == view


def test_bad_rows_stop_a_calibration_unless_the_reviewer_goes_on(wired, tmp_path):
    prompts = wired[CalibrationService].parse(
        write(tmp_path, prompt_set_csv() + "only a prompt,,\n" + "x" * 300 + ",y,\n")
    )
    before = wired[JobService].list()
    with pytest.raises(ServiceError, match=r"2 of 42 .* line 42"):
        wired[CalibrationService].submit(prompts, REQUEST)
    assert wired[JobService].list() == before
    accepted = replace(REQUEST, accept_errors=True)
    assert wired[JobService].wait(wired[CalibrationService].submit(prompts, accepted)).status == "done"


def test_another_version_of_the_embedded_calibration_is_stored_once_beside_the_older_one(wired, made, tmp_path):
    new = wired[CalibrationService].load(made().summary.id)
    for name, calibration in (("old.zip", new.read(bin_spacing="even")), ("new.zip", new)):
        calibration.save(tmp_path / name)
    settings = Settings(database_url=f"sqlite:///{tmp_path / 'own.sqlite3'}", pipeline="none")
    with services(settings, loader=load_tiny) as own:
        old = own[CalibrationStore].install_embedded(tmp_path / "old.zip")
        first = own[CalibrationStore].install_embedded(tmp_path / "new.zip")
        assert [entry.last_step for entry in old.bins[:2]] == [7, 15]
        assert [entry.last_step for entry in first.bins[:2]] == [0, 1]
        for name, record in (("old.zip", old), ("new.zip", first)):
            assert own[CalibrationStore].install_embedded(tmp_path / name).id == record.id


def test_a_calibration_by_group_is_read_for_each_group(wired, made):
    view = made(grouped_rows(), by_group=True)
    assert [group.name for group in view.groups] == ["a", "b"]
    assert sum(group.contexts for group in view.groups) == view.summary.contexts
    stored = wired[CalibrationService].load(view.summary.id)
    part = wired[CalibrationService].view(view.summary.id, ReadingRequest(group="b"))
    assert part.group == "b"
    assert part.tokens == len(stored.for_group("b").joint.values)
    assert part.bins[0].tau == stored.for_group("b").bins[0].tau
    assert part.groups == view.groups == stored.joint.groups
    # What each group needs follows alpha, although its size is looked up once.
    assert (
        wired[CalibrationService].view(view.summary.id, ReadingRequest(alpha=0.3)).groups
        == stored.read(alpha=0.3).joint.groups
    )
    with pytest.raises(InvalidInputError, match="nothing is certified"):
        wired[CalibrationService].view(view.summary.id, ReadingRequest(alpha=0.01, group="b"))
    with pytest.raises(InvalidInputError, match="no group 'c'"):
        wired[CalibrationService].view(view.summary.id, ReadingRequest(group="c"))


def test_a_factorized_calibration_is_stored_read_by_family_exported_and_deleted(wired, made, tmp_path):
    shares = (("gender", 0.07), ("race", 0.13))
    view = made(grouped_rows(120), name="gone", mask_layout="factorized", alpha=0.2, alpha_by_family=shares)
    assert view.summary.mask_layout == "factorized"
    assert [(part.family, part.alpha) for part in view.families] == list(shares)
    assert (view.alpha, view.family, view.sequence) == (0.2, "gender", None)
    stored = wired[CalibrationService].load(view.summary.id)
    assert view.bins[0].tau == stored.part("gender").bins[0].tau
    assert view.coverage[0].kept == stored.coverage.kept
    race = wired[CalibrationService].view(view.summary.id, ReadingRequest(family="race"))
    assert (race.family, race.tokens) == ("race", len(stored.part("race").values))
    assert race.bins[0].contexts == race.families[1].contexts
    equal = wired[CalibrationService].view(view.summary.id, ReadingRequest(alpha=0.3))
    assert [part.alpha for part in equal.families] == [0.15, 0.15]
    other = wired[CalibrationService].view(
        view.summary.id, ReadingRequest(alpha_by_family=(("gender", 0.1), ("race", 0.1)))
    )
    assert [part.alpha for part in other.families] == [0.1, 0.1]
    with pytest.raises(ServiceError, match="age"):
        wired[CalibrationService].view(view.summary.id, ReadingRequest(family="age"))
    path = wired[CalibrationService].export(view.summary.id, tmp_path)
    assert cc.Calibration.from_bytes(path.read_bytes()) == stored
    wired[CalibrationService].delete(view.summary.id)
    with pytest.raises(StoreError):
        wired[CalibrationService].view(view.summary.id)
    assert view.summary.id not in [item.id for item in wired[CalibrationService].list()]


@pytest.mark.parametrize("layout", ["joint", "factorized"])
def test_chains_are_recorded_on_the_contexts_kept_apart_where_they_are_enough(wired, made, layout):
    few = made(grouped_rows(20), **CHAINS, mask_layout=layout)
    stored = wired[CalibrationService].load(few.summary.id)
    assert set(np.unique(stored.chosen.contexts)) == set(range(20))
    many = made(grouped_rows(), **CHAINS, mask_layout=layout)
    stored = wired[CalibrationService].load(many.summary.id)
    parts = [part for _, part in stored.parts]
    held_out = {n for part in parts for n in np.unique(part.verification.contexts).tolist()}
    assert set(np.unique(stored.chosen.contexts).tolist()) == held_out
    assert many.has_chains
    assert stored.chains.reading.alpha == pytest.approx(0.1)


def test_weights_of_a_column_are_those_of_the_contexts(wired, made):
    rows = grouped_rows()
    view = made(rows, weighting="column", by_group=True)
    stored = wired[CalibrationService].load(view.summary.id)
    shift = stored.joint.shift
    assert dict(zip(shift.contexts, shift.weights, strict=True)) == {i: 1 + i % 2 for i in range(60)}
    assert view.effective_contexts == stored.joint.effective_contexts < view.summary.contexts
    plain = wired[CalibrationService].load(made(rows, by_group=True).summary.id)
    assert stored == replace(plain.reweighted({i: 1 + i % 2 for i in range(60)}), created=stored.created)


def test_a_bound_on_the_density_ratio_is_stored_and_one_that_leaves_no_level_is_read_without_a_threshold(made):
    view = made(rho=2.0)
    assert (view.reading.rho, view.bins[0].needed) == (2, 19)
    assert any("at most 2" in note for note in view.notes)
    view = made(grouped_rows(8), rho=4.0, by_group=True, verification_share=0.0)
    assert view.smallest_alpha.overall == pytest.approx(4 / 9)
    small = made(grouped_rows(3), rho=4.0, by_group=True, verification_share=0.0)
    assert small.smallest_alpha.overall is None
    assert small.bins[0].state == "uninformative"


def test_estimated_weights_favour_prompts_like_those_in_use(wired, made):
    deployment = tuple(f"The Black man said number {i} to them," for i in range(40))
    view = made(grouped_rows(80), weighting="estimated", by_group=True, deployment=deployment)
    stored = wired[CalibrationService].load(view.summary.id)
    weights = np.array(stored.joint.shift.weights)
    assert stored.joint.shift.estimated
    assert weights[1::2].mean() > 2 * weights[::2].mean()
    assert any("estimated" in note for note in view.notes)


@pytest.mark.parametrize("layout", ["joint", "factorized"])
def test_a_stored_calibration_is_weighted_anew_without_the_model(wired, made, monkeypatch, layout):
    view = made(grouped_rows(100), by_group=True, mask_layout=layout)
    monkeypatch.setattr(wired[CalibrationService].host, "get", None)
    mixed = tuple(f"{who} said number {i} to them," for i in range(30) for who in ("He", "The Black man", "A man"))
    number = wired[CalibrationService].reweight(view.summary.id, mixed, "for the ward")
    unnamed = wired[CalibrationService].reweight(view.summary.id, mixed, " ")
    assert wired[CalibrationService].view(unnamed).summary.name == "set, weighted"
    shown = wired[CalibrationService].view(number)
    assert (shown.summary.name, shown.summary.mask_layout) == ("for the ward", layout)
    assert any("estimated" in note for note in shown.notes)
    assert shown.effective_contexts is not None
    before = wired[CalibrationService].load(view.summary.id)
    assert wired[CalibrationService].load(number).fingerprint == before.fingerprint
    assert wired[CalibrationService].view(view.summary.id) == view


def test_a_calibration_whose_prompts_are_not_stored_cannot_be_weighted_anew(wired, made):
    embedded = next(item for item in wired[CalibrationService].list() if item.embedded)
    number = made(name="gone").summary.id
    wired[CalibrationService]._prompt_sets.delete(wired[CalibrationService]._store.get(number).prompt_set_id)
    for gone in (embedded.id, number):
        with pytest.raises(ServiceError, match="are not stored"):
            wired[CalibrationService].reweight(gone, tuple(f"he {i}" for i in range(30)), "new")


def test_a_reading_reuses_what_does_not_depend_on_alpha_and_never_a_deleted_runs(wired, made):
    number = made(grouped_rows(), name="gone", by_group=True).summary.id
    readings: CalibrationReadings = wired[CalibrationService].view.__self__
    first = readings.view(number, ReadingRequest(alpha=0.2))
    second = readings.view(number, ReadingRequest(alpha=0.3))
    assert first.log_values is second.log_values
    assert first.bins[0].tau != second.bins[0].tau
    assert readings.view(number, ReadingRequest(bin_width=4)).log_values is not first.log_values
    assert readings.view(number, ReadingRequest(group="a")).log_values is not first.log_values
    wired[CalibrationService].delete(number)
    with pytest.raises(StoreError, match="no calibration"):
        readings.view(number)


def test_what_a_calibration_says_is_json_and_rollouts_keep_their_rounds(wired, made):
    rolled = made(SAID, **ROLLOUT)
    assert (rolled.summary.source, rolled.iterations[-1].final, rolled.has_chains) == ("rollout", True, True)
    assert any("settle" in note for note in rolled.notes)
    for view in (made(), made(grouped_rows(), **CHAINS, mask_layout="factorized"), rolled):
        text = json.dumps(calibration_json(view), allow_nan=False)
        assert json.loads(text)["calibration_id"] == view.summary.id
        json.dumps(drift_json(wired[CalibrationService].drift(view.summary.id)), allow_nan=False)


def test_weights_are_not_estimated_for_contexts_that_an_earlier_version_counted_otherwise(wired, made):
    view = made(grouped_rows())
    stored = wired[CalibrationService].load(view.summary.id)
    parts = (stored.joint.values, stored.joint.verification)
    merged = [replace(values, contexts=values.contexts // 30) for values in parts]
    record = wired[CalibrationService]._store.get(view.summary.id)
    older = wired[CalibrationService]._store.add(
        stored.each(lambda part: replace(part, values=merged[0], verification=merged[1])), record.prompt_set_id
    )
    with pytest.raises(ServiceError, match="rows of one group"):
        wired[CalibrationService].reweight(older.id, tuple(f"he {i}" for i in range(30)), "new")


def test_audits_of_the_programs_own_samples_never_raise_its_alarm():
    embedded = cc.Calibration.load(assets_path(*EMBEDDED_CALIBRATION))
    policy = cc.CoftPolicy(lam=0.6, calibration=embedded)
    prompts = [prompt for _, group in phantom_examples() for _, prompt, _ in group]
    asked = [cc.Example(prompt, context=str(number)) for number, prompt in enumerate(prompts)]
    chosen = cc.record_chains(cc.load_model("demo"), asked, policy, max_new_tokens=WINDOW, seed=7).chosen

    def audits(told):
        return [
            SessionBeginning(
                number, told(prompt), 0.1, False, "certified", None,
                tuple(StepSupport(False, support, support) for support in chosen.values[chosen.contexts == number]),
            )
            for number, prompt in enumerate(prompts)
        ]  # fmt: skip

    # Their prompts are of another kind than the calibration's, which the tests notice rightly.
    assert drift_of(embedded, audits(lambda prompt: f"{prompt} ")).status in ("watch", "recalibrate")
    report = drift_of(embedded, audits(lambda prompt: prompt))
    assert (report.status, len(report.left_out)) == ("unknown", len(prompts))
    assert {prompt for _, prompt, _ in examples()} < shipped_prompts()
    for sample in listed_samples("calibration", "deployment", "audit"):
        parsed = parse_prompt_set(sample.path, sample.name, 10**7)
        assert {example.prompt for _, example in parsed.rows} <= shipped_prompts(), sample.name
