"""Claims on suites: they are about the figure of all items, and intervals of what was read hold it."""

import json
import random
from types import SimpleNamespace

import numpy as np
import pytest

from app.cli import main
from app.evaluate.items import asks_of, outcomes_of
from app.gate.file import read_check
from app.gate.suites import SuiteClaims
from app.shared.errors import ServiceError
from coft_core.model.load import load_model
from coft_core.policies.coft import CoftPolicy
from coft_core.policies.vanilla import VanillaPolicy
from coft_core.suites.base import Choices, Item, Likelihood, Scored, Unread
from coft_core.suites.crows_pairs import CrowsPairs
from coft_core.suites.files import DataFolder
from coft_core.suites.multiple_choice import Piqa
from coft_core.suites.phantom import PhantomGaps
from coft_core.suites.reading import Reader

ITEMS = 300


def claims(tmp_path, suite, answers, *texts, **budget):
    """Claims on a suite of two choices, whose first is the likelier one by so many nats, by policy; None is unread."""
    items = tuple(
        Item(str(n), str(n), (Choices("", ("a", "b")),), {"right": 0, "lengths": [1, 1], "direction": "stereo"}
             | {"bias_type": "age"}) for n in range(len(answers[0]))
    )  # fmt: skip

    def outcomes(batch, policies, seed):
        asks_of(suite.key, batch, seed)
        return [
            outcomes_of(batch, [answer(own[int(item.id)]) for item in batch], seed)
            for own in answers[: len(policies)]
        ]  # fmt: skip

    path = tmp_path / "audit.yaml"
    path.write_text(json.dumps({"claims": texts, "budget": {"prompts": ITEMS, **budget}}))
    reading = SimpleNamespace(suite=suite, items=items, source="", digest="", outcomes=outcomes)
    return SuiteClaims(read_check(path), reading, CoftPolicy())


def answer(nats):
    return Unread("too long") if nats is None else Scored(tuple(Likelihood(1, log_p, log_p) for log_p in (nats, 0.0)))


def read_on(suite):
    looks = []
    while suite.done < suite.most and any(one.verdict == "undecided" for one in suite.judged):
        suite.read()
        looks.append(suite.judged)
    return looks


@pytest.mark.parametrize(("bound", "verdict"), [(0.6, "pass"), (0.59, "fail")])
def test_a_claim_is_about_the_figure_of_all_items_and_is_decided_with_the_last_one_at_latest(tmp_path, bound, verdict):
    nats = [1.0] * 180 + [-1.0] * 120
    suite = claims(tmp_path, CrowsPairs(), [nats], f"crows_pairs.stereotype <= {bound}")
    (one,) = read_on(suite)[-1]
    assert one.verdict == verdict
    outcome = [item.value for item in suite.items]
    assert len(outcome) == one.observations == suite.done


def test_clear_figures_are_decided_long_before_the_last_item(tmp_path):
    suite = claims(tmp_path, CrowsPairs(), [[1.0] * ITEMS], "crows_pairs.stereotype <= 0.6")
    assert read_on(suite)[-1][0].verdict == "fail"
    assert suite.done <= 64


def test_a_loss_is_measured_on_items_that_both_policies_answered(tmp_path):
    draw = random.Random(0)
    plain = [draw.choice((1.0, 1.0, -1.0, None)) for _ in range(ITEMS)]
    own = [None if nats is None else -1.0 if n % 10 == 0 else nats for n, nats in enumerate(plain)]
    pairs = [(a > 0, b > 0) for a, b in zip(plain, own, strict=True) if a is not None]
    loss = sum(a - b for a, b in pairs) / len(pairs)
    suite = claims(tmp_path, Piqa(), [own, plain], f"accuracy_loss(piqa) <= {loss:.9f}", "piqa.accuracy >= 2")
    looks = read_on(suite)
    assert all(low <= loss + 1e-9 and loss <= high + 1e-9 for (one, _) in looks for low, high in [(one.low, one.high)])
    assert looks[-1][0].estimate == pytest.approx(loss) or looks[-1][0].verdict != "undecided"
    assert looks[-1][1].verdict == "fail"
    assert all(why == "too long" for _, why in suite.left_out)
    assert len(suite.left_out) == plain.count(None) or suite.done < ITEMS


def test_a_figure_that_is_not_a_mean_waits_for_all_items_and_is_refused_where_the_budget_ends_before(tmp_path):
    with pytest.raises(ServiceError, match="300"):
        claims(tmp_path, CrowsPairs(), [[1.0] * ITEMS], "crows_pairs.parity_gap <= 0.5", prompts=200)
    looks = read_on(claims(tmp_path, CrowsPairs(), [[1.0] * ITEMS], "crows_pairs.stereotype_shared >= 0.5"))
    # None of the pairs has an end that both sentences share, so that nothing is known of them.
    assert (looks[-1][0].verdict, looks[-1][0].estimate) == ("undecided", None)


def test_the_interval_of_an_embedded_suite_holds_the_figure_of_all_its_items(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("COFT_DATABASE_URL", f"sqlite:///{tmp_path}/x.sqlite3")
    file = tmp_path / "audit.yaml"
    file.write_text("claims:\n  - phantom_gaps.gap >= 0.99\n")
    assert main(["check", str(file), "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    (read,), (claim,) = told["suites"], told["claims"]
    assert read["read"] == len(told["items"]) == claim["observations"] < read["items"]
    suite, reader = PhantomGaps(), Reader(load_model("demo"))
    items = suite.items(DataFolder(tmp_path))
    asks, seeds = asks_of(suite.key, items, 0)
    (answers,) = reader.read(asks, [VanillaPolicy()], seeds)
    figure = suite.main_figure(outcomes_of(items, answers, 0))
    assert claim["low"] <= figure.value <= claim["high"]
    assert claim["estimate"] == pytest.approx(np.mean([item["value"] for item in told["items"]]))
