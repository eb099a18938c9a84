"""Attribute swaps through the service: exact distances, reproducible chains, and notes on what cannot be compared."""

import csv
import functools
import io
import json
import math
from dataclasses import replace

import pytest
import scipy.stats
import torch

from app.audit.service import AuditService
from app.sessions.service import LibraryQuery, SessionLibrary
from app.shared.audits import AuditSettings, CalibrationRequest
from app.shared.errors import ServiceError
from app.swap.distributions import controls_of, swap_csv
from app.swap.operations import swap_json
from app.swap.service import SwapCancelled, SwapService
from app.swap.types import SwapControls, SwapDifference, SwapGroup, SwapRequest, SwapRow, SwapToken
from app.swap.variants import ControlVariant, control_variants, swap_offers, swap_targets, words_from
from coft_core.controls.statistics import between_groups
from coft_core.decode.loop import Rollout
from coft_core.errors import CalibrationMismatch, InvalidInputError
from coft_core.types import FAMILIES, Span
from tests.app.conftest import calibrated_on
from tests.conftest import prompt_set_csv, the_tiny_model

SETTINGS = AuditSettings(model="tiny", top_p=1.0, lam=0.25, seed=3)
PROMPT = "The nurse read her note"
SPANS = (Span(15, 18, "gender"),)
REQUEST = SwapRequest(PROMPT, SETTINGS, SPANS, pronouns=("she", "he"), max_new_tokens=3)


@functools.cache
def next_token(ids):
    """The tiny model's own next-token logits, ``(V,)``, from one plain forward."""
    with torch.inference_mode():
        return the_tiny_model().module(torch.tensor([ids])).logits[0, -1].double()


def ids_of(text, masked=None):
    tokenizer = the_tiny_model().tokenizer
    ids = tokenizer.encode(text, add_special_tokens=False)
    for at in range(*(masked or (0, 0))):
        ids[at] = tokenizer.mask_token_id
    return tuple(ids)


def distance(p, q):
    return float((p - q).abs().sum() / 2)


@pytest.fixture(scope="module")
def wired(shared):
    return shared


@pytest.fixture(scope="module")
def compared(wired):
    return wired[SwapService].compare(REQUEST)


@pytest.fixture(scope="module")
def calibrated(wired, tmp_path_factory):
    request = CalibrationRequest(name="set", model="tiny", top_p=1.0, lam=0.25)
    return calibrated_on(wired, tmp_path_factory.mktemp("set"), prompt_set_csv(), request)


def test_distances_are_those_of_the_whole_distributions(compared):
    result = compared
    assert [outcome.variant.label for outcome in result.outcomes] == ["as typed (she)", "he"]
    hers, his = ids_of(PROMPT), ids_of("The nurse read his note")
    masked = next_token(ids_of(PROMPT, masked=(15, 18)))
    expected = {
        "factual": (next_token(hers), next_token(his)),
        "fused": tuple(0.75 * next_token(ids) + 0.25 * masked for ids in (hers, his)),
        "masked": (masked, masked),
    }
    (gap,) = result.gaps
    assert result.views == ("factual", "fused", "masked")
    for view, logits in expected.items():
        p, q = (z.softmax(-1) for z in logits)
        assert gap.distances[view] == pytest.approx(distance(p, q), abs=1e-6), view
        assert result.largest(view) == result.mean(view) == gap.distances[view]
        for row in result.tokens:
            assert row.probabilities[view] == pytest.approx((float(p[row.token_id]), float(q[row.token_id])), abs=1e-6)
    assert 0 < gap.distances["fused"] < gap.distances["factual"]
    assert all(outcome.masked_like_first for outcome in result.outcomes)
    assert not any("masked prompt" in note for note in result.notes)


def test_candidates_unite_the_likeliest_of_every_variant_and_the_most_different_come_first(wired):
    result = wired[SwapService].compare(replace(REQUEST, top=2))
    expected = set()
    for text in (PROMPT, "The nurse read his note"):
        masked = next_token(ids_of(PROMPT, masked=(15, 18)))
        own = next_token(ids_of(text))
        for logits in (own, 0.75 * own + 0.25 * masked):
            expected.update(logits.topk(2).indices.tolist())
    assert {row.token_id for row in result.tokens} == expected
    spreads = [abs(row.probabilities["factual"][0] - row.probabilities["factual"][1]) for row in result.tokens]
    assert spreads == sorted(spreads, reverse=True)


def test_each_chain_is_the_one_that_its_session_would_write(wired):
    before = wired[SessionLibrary].search(LibraryQuery()).total
    result = wired[SwapService].compare(REQUEST)
    assert wired[SessionLibrary].search(LibraryQuery()).total == before
    for outcome in result.outcomes:
        for chain in (outcome.vanilla, outcome.policy):
            view = wired[AuditService].start(chain.start)
            steps = list(wired[AuditService].run(view.session_id))
            assert [s.token_id for s in steps] == [s.token_id for s in chain.steps]
            assert (view.certificate, len(chain.steps)) == (chain.certificate, 3)
    assert {outcome.vanilla.start.settings.policy for outcome in result.outcomes} == {"vanilla"}


def test_variants_of_other_lengths_or_with_other_words_around_are_said_to_have_another_masked_view(wired):
    result = wired[SwapService].compare(replace(REQUEST, pronouns=("she", "they")))
    assert result.outcomes[1].variant.prompt == "The nurse read their note"
    assert [outcome.masked_like_first for outcome in result.outcomes] == [True, False]
    assert result.gaps[0].distances["masked"] > 0
    assert any("(it has 25 tokens instead of 23)" in note for note in result.notes)
    spans = (Span(7, 9, "other"),)
    request = SwapRequest("See an ox", SETTINGS, spans, groups=("ax", "yo"), include_original=False, max_new_tokens=1)
    result = wired[SwapService].compare(request)
    assert [outcome.variant.prompt for outcome in result.outcomes] == ["See an ax", "See a yo"]
    assert [outcome.masked_like_first for outcome in result.outcomes] == [True, False]


def test_what_the_policy_draws_from_is_compared_where_thresholds_restrict_it(wired, calibrated):
    settings = replace(SETTINGS, calibration_id=calibrated, alpha=0.9)
    result = wired[SwapService].compare(replace(REQUEST, settings=settings))
    assert result.views == ("factual", "fused", "drawn", "masked")
    assert all(outcome.policy.certificate.startswith("certified at ") for outcome in result.outcomes)
    log_tau = result.outcomes[0].policy.steps[0].log_tau
    masked = next_token(ids_of(PROMPT, masked=(15, 18))).log_softmax(-1)
    drawn = []
    for outcome in result.outcomes:
        fused = (0.75 * next_token(ids_of(outcome.variant.prompt)) + 0.25 * masked).log_softmax(-1)
        members = torch.minimum(fused, masked) >= log_tau
        assert 0 < int(members.sum()) < members.numel()
        drawn.append(torch.where(members, fused, -torch.inf).softmax(-1))
    assert result.gaps[0].distances["drawn"] == pytest.approx(distance(*drawn), abs=1e-6)


def test_a_later_token_follows_each_variants_own_chain(wired, compared):
    first = compared
    result = wired[SwapService].compare(replace(REQUEST, answer_step=2))
    expected = []
    for outcome in first.outcomes:
        before = [step.token_id for step in outcome.vanilla.steps[:2]]
        expected.append(next_token((*ids_of(outcome.variant.prompt), *before)).softmax(-1))
    assert result.answer_step == 2
    assert result.gaps[0].distances["factual"] == pytest.approx(distance(*expected), abs=1e-6)
    assert any("Token 3 follows what each text wrote before it" in note for note in result.notes)


def test_progress_names_the_variants_in_turn_and_what_it_raises_ends_the_comparison(wired):
    class Enough(Exception):  # noqa: N818 - no error of the program
        pass

    told = []

    def progress(share, label):
        told.append((share, label))
        if len(told) == 2:
            raise Enough

    with pytest.raises(Enough):
        wired[SwapService].compare(REQUEST, progress)
    assert len(told) == 2
    # The model is free again, and the next comparison is whole.
    wired[SwapService].compare(REQUEST, lambda share, label: told.append((share, label)))
    # Two chains of three tokens a variant, and then 18 wordings, 16 in a batch.
    assert [share for share, _ in told[2:]] == pytest.approx([token / 15 for token in (*range(12), 12, 12 + 48 / 18)])
    assert [label for _, label in told[2:14]] == ["as typed (she)"] * 6 + ["he"] * 6


def test_a_comparison_is_cancelled_by_its_own_number_and_leaves_others_alone(wired):
    first, second = wired[SwapService].run(REQUEST), wired[SwapService].run(REQUEST)
    mine, other = next(first), next(second)
    assert mine.number != other.number
    wired[SwapService].cancel(mine.number)
    with pytest.raises(SwapCancelled, match="cancelled"):
        list(first)
    *_, result = second
    assert result.number == other.number
    wired[SwapService].cancel(other.number)
    assert wired[SwapService].at(other.number, 0) is result
    with pytest.raises(ServiceError, match="not kept any more"):
        wired[SwapService].at(mine.number, 0)


def test_another_step_is_read_from_the_chains_that_are_there(wired, monkeypatch):
    expected = wired[SwapService].compare(replace(REQUEST, answer_step=2))
    kept = wired[SwapService].compare(REQUEST)

    def refuse(*_):
        raise AssertionError("a chain was decoded again")

    monkeypatch.setattr(Rollout, "step", refuse)
    later = wired[SwapService].at(kept.number, 2)
    assert (later.answer_step, later.notes, later.common_steps) == (2, expected.notes, 3)
    assert later.outcomes == kept.outcomes
    for view in later.views:
        assert later.gaps[0].distances[view] == pytest.approx(expected.gaps[0].distances[view], abs=1e-6)
    with pytest.raises(ServiceError, match="ends after 3 tokens"):
        wired[SwapService].at(kept.number, 3)


def test_tables_hold_every_candidate_and_every_distance(wired, tmp_path):
    result = wired[SwapService].compare(REQUEST)
    tokens, distances = (
        list(csv.DictReader(wired[SwapService].write_csv(result.number, 0, table, tmp_path).open(newline="")))
        for table in ("tokens", "distances")
    )
    assert len(tokens) == len(result.tokens) * 2 * 3
    first = result.tokens[0]
    own = [row for row in tokens if row["token_id"] == str(first.token_id) and row["view"] == "fused"]
    assert [(row["variant"], float(row["probability"])) for row in own] == [
        ("as typed (she)", first.probabilities["fused"][0]),
        ("he", first.probabilities["fused"][1]),
    ]
    assert {row["view"]: float(row["total_variation"]) for row in distances} == result.gaps[0].distances
    assert {row["step"] for row in [*tokens, *distances]} == {"1"}


def test_a_stored_result_is_what_was_found_and_goes_on_where_it_was(wired):
    service = wired[SwapService]
    found = service.compare(REQUEST)
    form = {"form": {}, "values": [], "printed": ""}
    key = service.store(found.number, form)
    again, asked = service.stored(key)
    assert asked == form
    assert again.number != found.number
    assert replace(again, number=found.number) == found
    assert service.at(again.number, 1).answer_step == 1
    assert service.stored(key, 1)[0].answer_step == 1


def test_only_the_newest_comparisons_are_kept(wired, monkeypatch):
    monkeypatch.setattr("app.swap.service.KEPT", 1)
    swaps = SwapService(wired)
    older, newer = swaps.compare(REQUEST), swaps.compare(REQUEST)
    assert swaps.at(newer.number, 0) is newer
    with pytest.raises(ServiceError, match="run it again"):
        swaps.at(older.number, 0)


def test_targets_tell_pronouns_from_words_and_say_what_a_form_can_be():
    prompt = "He saw her Muslim friend"
    spans = (Span(0, 2, "gender"), Span(7, 10, "gender", kept=True), Span(11, 17, "religion"))
    found = swap_targets(prompt, spans)
    assert [(item.text, item.pronoun) for item in found.spans] == [("He", True), ("Muslim", False)]
    assert (found.families, found.has_pronoun) == (("religion",), True)
    assert [(item.text, item.role, item.roles, item.sure) for item in found.pronouns] == [
        ("He", "subject", ("subject",), True),
        ("her", "possessive", ("object", "possessive"), False),
    ]
    assert not swap_targets(prompt, spans[1:]).has_pronoun


REFUSED = (
    ({"pronouns": ()}, ServiceError, "not two different variants"),
    ({"pronouns": ("she",)}, ServiceError, "not two different variants"),
    ({"pronouns": ("xe",)}, ServiceError, "no pronouns 'xe'"),
    ({"spans": (Span(4, 9, "gender"),)}, ServiceError, "No masked word is a pronoun"),
    ({"spans": (Span(15, 18, "gender", kept=True),)}, ServiceError, "No masked word is a pronoun"),
    ({"spans": (Span(15, 99, "gender"),)}, InvalidInputError, "Span 1"),
    ({"targets": (3,)}, ServiceError, "No masked span begins at character 4"),
    ({"groups": ("nurse",)}, ServiceError, "mask the words that name one"),
    ({"groups": (" ",), "spans": (Span(4, 9, "other"), *SPANS)}, ServiceError, "group is empty"),
    ({"groups": ("x",), "spans": (Span(4, 9, "other"), Span(10, 14, "age"), *SPANS)}, ServiceError, "age and other"),
    ({"groups": ("a", "b"), "group_pronouns": ("he",), "spans": (Span(4, 9, "other"), *SPANS)}, ServiceError, "2 gro"),
    ({"groups": tuple("abcdefghijklm"), "spans": (Span(4, 9, "other"), *SPANS)}, ServiceError, "at most 12"),
    ({"roles": ((15, "verb"),)}, ServiceError, "cannot be 'verb'"),
    ({"roles": ((1, "object"),)}, ServiceError, "No pronoun begins at character 2"),
    ({"max_new_tokens": 0}, ServiceError, "at least one token"),
    ({"answer_step": -1}, ServiceError, "at least one token"),
    ({"top": 0}, ServiceError, "0 candidates"),
    ({"settings": replace(SETTINGS, lam=7.0)}, InvalidInputError, "7.0"),
)


def test_what_cannot_be_swapped_is_refused_in_one_sentence(wired):
    for changes, error, words in REFUSED:
        with pytest.raises(error, match=words) as caught:
            wired[SwapService].compare(replace(REQUEST, **changes))
        assert "\n" not in str(caught.value)


def test_a_calibration_of_another_policy_is_refused_before_any_chain(wired, calibrated):
    told = []
    settings = replace(SETTINGS, calibration_id=calibrated, lam=0.5)
    with pytest.raises(CalibrationMismatch):
        wired[SwapService].compare(replace(REQUEST, settings=settings), lambda *args: told.append(args))
    assert told == []


def test_groups_take_the_place_of_words_with_plurals_and_their_pronouns(wired):
    prompt = "A Muslim man said he likes Muslims"
    spans = (Span(2, 8, "religion"), Span(9, 12, "gender"), Span(18, 20, "gender"), Span(27, 34, "religion"))
    request = SwapRequest(prompt, SETTINGS, spans, groups=("atheist", "Sikh"), category="religion")
    made = wired[SwapService].variants(request)
    assert [variant.prompt for variant in made] == [
        prompt, "An atheist man said he likes atheists", "A Sikh man said he likes Sikhs",
    ]  # fmt: skip
    both = replace(
        request, groups=("woman", "man"), group_pronouns=("she", "he"), category="gender", include_original=False
    )
    made = wired[SwapService].variants(both)
    assert [(v.label, v.prompt) for v in made] == [
        ("woman, she", "A Muslim woman said she likes Muslims"),
        ("man, he", prompt),
    ]
    for variant in made:
        assert [variant.prompt[s.start : s.end] for s in variant.spans][::3] == ["Muslim", "Muslims"]
    # Detected spans serve where none are given.
    made = wired[SwapService].variants(SwapRequest("Then she left", SETTINGS, pronouns=("he",)))
    assert [variant.prompt for variant in made] == ["Then she left", "Then he left"]
    assert made[1].spans == (Span(5, 7, "gender", "user", "pronouns"),)


def test_usual_counterparts_come_first_and_words_that_are_only_there_to_be_found_are_not_offered():
    usual, further = swap_offers("age", "elderly")
    assert usual[0] == "young"
    assert len(usual) == 6
    assert {"Christian", "Sikh", "Hindu"} <= set(swap_offers("religion", "Muslims")[0])
    assert swap_offers("gender", "woman")[0][0] == "man"
    everything = {term for family in FAMILIES for offers in swap_offers(family) for term in offers}
    assert everything.isdisjoint({"colored", "illegals", "retarded", "oriental", "Mohammedan"})
    assert set(usual).isdisjoint(further)
    assert swap_offers("other") == ((), ())


def test_the_terminal_compares_under_any_method_and_names_it(command, tmp_path):
    swap = ("swap", "--prompt", "He is a nurse", "--pronouns", "she", "--model", "tiny", "--steps", "2")
    code, shown, _ = command(*swap, "--policy", "sdd", "--set", "decay=20", "--out", tmp_path)
    assert code == 0
    assert "Self-debiasing (uncertified:" in shown
    assert {path.name for path in tmp_path.glob("*.csv")} == {"tokens.csv", "distances.csv", "words.csv", "groups.csv"}
    made = json.loads(command(*swap, "--policy", "sdd", "--set", "decay=20", "--json")[1])
    assert [variant["policy"]["finished"] for variant in made["variants"]] == ["length", "length"]
    code, _, error = command(*swap, "--policy", "other")
    assert (code, "'sdd'" in error) == (2, True)


GROUPED = SwapRequest(
    "A Muslim left", replace(SETTINGS, controls=3), (Span(2, 8, "religion"),), groups=("Christian",), max_new_tokens=2,
    members=(("Muslims", ("Sunni", "Sufi")), ("Christians", ("Quaker", "Baptist"))),
)  # fmt: skip


@pytest.fixture(scope="module")
def grouped(wired):
    return wired[SwapService].compare(GROUPED)


def test_groups_are_compared_with_their_words_and_wordings_by_the_probabilities_of_one_token(grouped):
    controls = grouped.controls
    assert [group.name for group in controls.groups] == ["Muslims", "Christians"]
    assert [row.word for row in controls.groups[1].members] == ["Christian", "Quaker", "Baptist"]
    assert [len(group.members) for group in controls.groups] == [3, 3]
    assert [len(group.wordings) for group in controls.groups] == [3, 3]
    for group in controls.groups:
        for row in group.members:
            text, end = f"A {row.word} left", 2 + len(row.word)
            own, masked = next_token(ids_of(text)), next_token(ids_of(text, masked=(2, end)))
            for view, logits in (("factual", own), ("policy", 0.75 * own + 0.25 * masked)):
                expected = [float(logits.softmax(-1)[token_id]) for token_id in controls.token_ids]
                assert getattr(row, view) == pytest.approx(expected, abs=1e-6)
    (item,) = controls.differences
    for view in ("factual", "policy"):
        first, second = ([getattr(row, view)[0] for row in group.members] for group in controls.groups)
        found = getattr(item, view)
        assert found == between_groups([first], [second])
        assert (found.ways, found.exact) == (20, True)
        assert found.difference == pytest.approx(sum(first) / 3 - sum(second) / 3)


def test_the_compared_token_is_chosen_without_regard_to_groups(wired, grouped):
    turned = replace(GROUPED, include_original=False, groups=("Christian", "Muslim"))
    other = wired[SwapService].compare(turned).controls
    assert other.token_ids == grouped.controls.token_ids
    assert other.differences[0].factual.difference == pytest.approx(-grouped.controls.differences[0].factual.difference)


def test_controls_follow_one_text_at_a_later_token_and_can_be_read_there_afterwards(wired, grouped):
    later = wired[SwapService].at(grouped.number, 1)
    before = grouped.outcomes[0].vanilla.steps[0].token_id
    row = later.controls.groups[1].members[2]
    expected = next_token((*ids_of("A Baptist left"), before)).softmax(-1)
    assert row.factual == pytest.approx([float(expected[token]) for token in later.controls.token_ids], abs=1e-6)


def controls_with(first, second, wordings=(0.5,)):
    """Controls of groups whose words have these probabilities; the first group has wordings too."""

    def rows(values):
        return tuple(SwapRow(str(value), (value,), (value,)) for value in values)

    found = between_groups([first], [second])
    groups = (SwapGroup("a", rows(first), rows(wordings)), SwapGroup("b", rows(second), ()))
    return SwapControls((1,), (" x",), groups, (SwapDifference(0, 1, found, found),))


def test_a_difference_is_of_the_group_only_where_it_exceeds_words_and_wordings():
    apart, together = (
        ([0.5, 0.51, 0.52, 0.53], [0.1, 0.11, 0.12, 0.13]),
        ([0.5, 0.1, 0.52, 0.13], [0.1, 0.51, 0.12, 0.11]),
    )
    for (first, second), wordings, state in (
        (apart, (0.5,), "group"),
        (together, (0.5,), "word"),
        (apart, (0.05,), "wording"),
        (together, (0.05,), "wording"),
        (([0.5], [0.1]), (0.5,), "no control"),
        (([0.5], [0.1]), (0.05,), "wording"),
    ):
        controls = controls_with(first, second, wordings)
        assert controls.state(controls.headline) == state, (first, second, wordings)
    three = controls_with(*apart)
    single = replace(three, groups=(*three.groups, three.groups[0]), differences=three.differences * 3)
    assert single.p_value(single.headline) == pytest.approx(3 * three.p_value(three.headline))


def test_json_and_tables_carry_the_controls_and_say_where_there_are_none(wired, grouped):
    told = json.loads(json.dumps(swap_json(grouped)))["controls"]
    words, groups = (list(csv.DictReader(io.StringIO(swap_csv(grouped, table)))) for table in ("words", "groups"))
    assert len(words) == 2 * (3 + 3) * 2 * 2
    assert [row["first"] for row in groups] == ["Muslims", "Muslims"]
    for row, difference in zip(groups, told["differences"], strict=True):
        assert float(row["p_value"]) == difference["p_value"]
        assert float(row["between_wordings"]) == difference["between_wordings"]
        assert row["found"] == difference["found"]
    without = wired[SwapService].compare(replace(GROUPED, settings=replace(SETTINGS, controls=0)))
    assert without.controls is None
    assert swap_json(without)["controls"]["found"] == "no control"
    assert len(swap_csv(without, "groups").splitlines()) == 1
    # A pronoun is the only word of its group.
    single = wired[SwapService].compare(replace(REQUEST, settings=replace(SETTINGS, controls=5)))
    (item,) = single.controls.differences
    assert single.controls.p_value(item) is None
    assert single.controls.state(item) in ("no control", "wording")
    assert [len(group.wordings) for group in single.controls.groups] == [5, 5]


def test_no_text_is_among_the_words_of_a_group_twice(wired):
    request = SwapRequest("Some Muslims left", SETTINGS, (Span(5, 12, "religion"),), groups=("Jew", "Sunni"))
    rows = [row for row in control_variants(request, request.spans) if not row.is_wording]
    assert rows[0].variant.prompt == "Some Muslims left"
    assert "Some Sunnis left" in {row.variant.prompt for row in rows if row.group == 0}
    assert {row.group for row in rows} == {0, 1}
    assert len({row.variant.prompt for row in rows}) == len(rows)


def test_paraphrases_take_the_place_of_wordings_by_rules_in_every_group(wired):
    request = replace(GROUPED, paraphrases=("There was a Muslim who left",))
    rows = [row for row in control_variants(request, GROUPED.spans) if row.is_wording]
    assert [(row.group, row.variant.prompt) for row in rows] == [
        (0, "There was a Muslim who left"),
        (1, "There was a Christian who left"),
    ]
    with pytest.raises(InvalidInputError, match="lacks the marked word"):
        wired[SwapService].variants(replace(request, paraphrases=("A man left",)))


def test_a_file_of_words_and_paraphrases_is_read_and_its_faults_are_named():
    text = "group,word,paraphrase\nold,aged,\nold,grey,Once he left\nnew,young,\n"
    assert words_from(text, "f.csv") == ((("old", ("aged", "grey")), ("new", ("young",))), ("Once he left",))
    assert words_from("paraphrase\nOne\n", "f.csv") == ((), ("One",))
    for text, words in (("group,word\nold,\n", "Line 2 of f.csv"), ("a,b\n1,2\n", "neither"), ("word\nx\n", "Line 2")):
        with pytest.raises(ServiceError, match=words):
            words_from(text, "f.csv")


def test_distributions_are_those_of_policies_that_look_back_at_what_they_wrote(wired):
    settings = replace(SETTINGS, policy="gedi", controls=0)
    result = wired[SwapService].compare(replace(REQUEST, settings=settings, answer_step=2, top=50))
    for place, outcome in enumerate(result.outcomes):
        step = outcome.policy.steps[2]
        (row,) = (token for token in result.tokens if token.token_id == step.token_id)
        assert row.probabilities["fused"][place] == pytest.approx(math.exp(step.log_p_fused), abs=1e-5)


def test_the_choice_of_the_token_and_of_the_pair_finds_no_more_than_the_level_allows_where_groups_do_not_differ():
    generator = torch.Generator().manual_seed(7)
    rows = [ControlVariant(place, f"{place}{word}", None, False) for place in range(3) for word in range(5)]
    candidates = [SwapToken(number, str(number), {}) for number in range(8)]
    runs, rejected = 150, 0
    for _ in range(runs):
        # Words differ, and the same way in every group; tokens compete, so that choosing one could help.
        p = (2 * torch.randn(len(rows), len(candidates), generator=generator)).softmax(-1).double()
        controls = controls_of("abc", rows, [{"factual": row, "fused": row} for row in p], candidates)
        rejected += controls.p_value(controls.headline) <= 0.05
    # So many or more are seen in one of a thousand cases if the level is kept.
    assert rejected <= scipy.stats.binom.ppf(0.999, runs, 0.05)
