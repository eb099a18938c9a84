"""The command line on the embedded model: what the README promises."""

import csv
import json
import math

import pytest

from app.cli import main
from tests.vocabularies import random_model, words_alone

PROMPT = "The nurse finished rounds and then he prepared the reports"


@pytest.fixture(autouse=True)
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("COFT_DATABASE_URL", f"sqlite:///{tmp_path / 'store.sqlite3'}")
    monkeypatch.delenv("COFT_PIPELINE", raising=False)


def run(capsys, *arguments):
    code = main(list(arguments))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_an_audit_with_the_defaults_is_certified_and_its_report_is_sound(tmp_path, capsys):
    out = tmp_path / "report.csv"
    code, text, err = run(capsys, "audit", "--prompt", PROMPT, "--out", str(out), "--seed", "3", "--steps", "12")
    assert (code, err) == (0, "")
    for told in ("certified", "“he” (gender, lexicon", "Sentinel: “<mask>”"):
        assert told in text
    rows = list(csv.DictReader(out.open(newline="", encoding="utf-8")))
    assert rows
    for row in rows:
        joint = min(float(row["p_fused"]), float(row["p_masked"]))
        assert row["certificate"] == "certified"
        assert (row["certified"] == "true") == (joint >= float(row["tau"]))
        assert (row["certified"] == "true") != (row["fallback"] == "true")
        assert (row["fallback"] == "true") == (row["set_size"] == "0")


def test_json_output_is_one_document_that_agrees_with_the_report_and_no_chain_leaves_its_certified_set(
    tmp_path, capsys
):
    out = tmp_path / "report.csv"
    for seed in range(2):
        audit = json.loads(
            run(
                capsys, "audit", "--prompt", PROMPT, "--out", str(out), "--json", "--steps", "8", "--alpha", "0.3",
                "--seed", str(seed),
            )[1]
        )  # fmt: skip
        rows = list(csv.DictReader(out.open(newline="", encoding="utf-8")))
        assert [s["token_id"] for s in audit["steps"]] == [int(r["token_id"]) for r in rows]
        assert math.isclose(audit["steps"][0]["p_fused"], float(rows[0]["p_fused"]))
        assert all(s["certified"] or s["set_size"] == 0 for s in audit["steps"])


def test_calibrate_then_audit_with_it_then_report_and_delete(tmp_path, capsys):
    prompts = tmp_path / "set.jsonl"
    prompts.write_text(
        "".join(
            json.dumps({"prompt": f"He had {i} cats and", "reference": "he was very happy with them."}) + "\n"
            for i in range(30)
        )
    )
    code, text, _ = run(capsys, "calibrate", "--prompts", str(prompts), "--lam", "0.5", "--json")
    calibration = json.loads(text)
    assert code == 0
    assert calibration["contexts"] + calibration["coverage"]["contexts"] == 30
    number = str(calibration["calibration_id"])
    _, text, _ = run(
        capsys, "audit", "--prompt", PROMPT, "--lam", "0.5", "--calibration", number, "--json", "--steps", "3"
    )
    session = json.loads(text)["session_id"]
    _, text, _ = run(capsys, "sessions", "--json")
    assert [s["session_id"] for s in json.loads(text)] == [session]
    _, text, _ = run(capsys, "report", str(session))
    assert len(list(csv.DictReader(text.splitlines()))) == 3
    code, text, _ = run(capsys, "sessions", "--delete", str(session))
    assert code == 0
    assert json.loads(run(capsys, "sessions", "--json")[1]) == []


def test_bad_input_ends_with_one_sentence_and_stores_nothing(capsys):
    for arguments, message in (
        (["--prompt", " "], "prompt is empty"), (["--prompt", "he", "--lam", "1.5"], "lambda is 1.5"),
        (["--prompt", "he", "--alpha", "0"], "alpha"), (["--prompt", "he", "--temperature", "nan"], "temperature"),
        (["--prompt", "he", "--lam", "0.2"], "another policy"),
        (["--prompt", "he", "--spans", "she"], "not a JSON list"),
        (["--prompt", "he", "--calibration", "mine"], "no calibration"),
        (["--prompt", "he " * 600], "the model takes 512"),
        (["--prompt", "he", "--model", "/no/such/model"], "holds no model"),
        (["--prompt", "he", "--sentinel", "a person"], "not exactly one token"),
    ):  # fmt: skip
        code, out, err = run(capsys, "audit", *arguments)
        assert (code, out, err.count("\n"), message in err) == (1, "", 1, True), arguments
    assert json.loads(run(capsys, "sessions", "--json")[1]) == []


def test_a_model_without_a_sentinel_is_audited_with_vanilla_decoding_and_refused_for_coft(tmp_path, capsys):
    model = random_model(words_alone())
    model.module.save_pretrained(tmp_path / "words")
    model.tokenizer.save_pretrained(tmp_path / "words")
    audit = ("audit", "--model", str(tmp_path / "words"), "--prompt", "The nurse said he ran", "--steps", "1")
    code, text, _ = run(capsys, *audit, "--policy", "vanilla")
    assert code == 0
    assert "no token that could stand" in text
    code, _, error = run(capsys, *audit, "--calibration", "none")
    assert (code, error.count("\n")) == (1, 1)
    assert "no token that could stand" in error
    _, text, _ = run(capsys, *audit, "--sentinel", "home")
    assert "Sentinel: “home”" in text


def test_word_lists_are_added_shown_used_and_removed_and_a_bad_line_is_refused_with_its_number(tmp_path, capsys):
    (tmp_path / "bad.txt").write_text("nurse\nNurse\n")
    code, _, error = run(capsys, "lists", "add", str(tmp_path / "bad.txt"))
    assert (code, "line 2" in error) == (1, True)
    path = tmp_path / "ward.csv"
    path.write_text("term,family,action\nrounds,race,mask\nnurse,,keep\n")
    code, text, _ = run(capsys, "lists", "add", str(path))
    assert code == 0
    assert "“ward”: 1 masked, 1 kept" in text
    shown = json.loads(run(capsys, "lists", "show", "ward", "--json")[1])
    assert [term["action"] for term in shown["terms"]] == ["mask", "keep"]
    assert [item["name"] for item in json.loads(run(capsys, "lists", "show", "--json")[1])] == ["ward"]
    out = tmp_path / "copy.csv"
    run(capsys, "lists", "show", "ward", "--out", str(out))
    assert "rounds,race,mask" in out.read_text()
    audit = ("audit", "--prompt", PROMPT, "--list", "ward", "--calibration", "none", "--steps", "1")
    found = json.loads(run(capsys, *audit, "--json")[1])
    assert found["user_list"] == "ward"
    assert [(span["source"], span["kept"]) for span in found["spans"]][:2] == [("list", True), ("list", False)]
    assert "Word list: ward" in run(capsys, *audit)[1]
    assert run(capsys, "lists", "remove", "ward")[0] == 0
    code, _, error = run(capsys, *audit)
    assert (code, error.count("\n")) == (1, 1)
    assert "no word list “ward”" in error


def test_masks_whitelists_and_groups_are_options_of_an_audit(capsys):
    audit = ("audit", "--prompt", "The Muslim nurse said he left", "--calibration", "none", "--steps", "1", "--json")
    masks = ("--mask", "factorized", "--mask-mode", "soft", "--mask-hint", "someone", "--whitelist", "muslim")
    found = json.loads(run(capsys, *audit, *masks)[1])
    settings = found["settings"]
    assert (settings["mask_layout"], settings["mask_mode"], settings["mask_hint"]) == ("factorized", "soft", "someone")
    assert found["masked_branches"] == ["gender"]
    assert [span["kept"] for span in found["spans"]] == [True, False]
    alone = json.loads(run(capsys, *audit, "--mask", "religion")[1])
    assert (alone["settings"]["mask_layout"], alone["settings"]["masked_families"]) == ("joint", ["religion"])
    assert [span["suggested"] for span in alone["spans"]] == [False, True]
    code, _, error = run(capsys, *audit, "--group", "women")
    assert (code, error.count("\n")) == (1, 1)
    assert "no thresholds without a calibration" in error


def test_masked_families_are_an_option_and_a_setting(capsys, monkeypatch):
    audit = ("audit", "--prompt", "Emily, a Muslim, said he left", "--calibration", "none", "--steps", "1", "--json")
    suggested = lambda text: [span["suggested"] for span in json.loads(text)["spans"]]  # noqa: E731
    assert suggested(run(capsys, *audit)[1]) == [True, False, False]
    assert suggested(run(capsys, *audit, "--mask-families", "name")[1]) == [False, True, True]
    monkeypatch.setenv("COFT_MASK_FAMILIES", "all")
    assert suggested(run(capsys, *audit)[1]) == [False, False, False]
    monkeypatch.setenv("COFT_MASK_FAMILIES", "colour")
    code, _, error = run(capsys, *audit)
    assert code == 2
    assert "COFT_MASK_FAMILIES" in error
    assert "'colour'" in error


def test_a_stored_audit_is_read_at_another_lambda_and_alpha_and_says_what_it_may_claim(capsys):
    _, text, _ = run(capsys, "audit", "--prompt", PROMPT, "--steps", "6", "--seed", "5", "--json")
    audit = json.loads(text)
    number = str(audit["session_id"])
    _, text, _ = run(capsys, "reread", number, "--json")
    own = json.loads(text)
    assert own["certificate"] == f"certified at {own['certified']} of {len(own['steps'])} steps" == audit["certificate"]
    assert [s["policy_token_id"] for s in own["steps"]] == [s["token_id"] for s in audit["steps"]]
    assert [s["set_size"] for s in own["steps"]] == [s["set_size"] for s in audit["steps"]]
    code, text, _ = run(capsys, "reread", number, "--lam", "0.1", "--alpha", "0.2")
    assert code == 0
    assert "read at lambda 0.1, alpha 0.2" in text
    assert "Uncertified at this lambda" in text
    assert len([line for line in text.splitlines() if line.strip()[:1].isdigit()]) >= 6
    code, _, error = run(capsys, "reread", number, "--lam", "2")
    assert code == 1
    assert "ambda" in error
