"""Comparing from the command line: policies run beside each other, and stored audits put beside each other."""

import csv
import json

PROMPT = "The nurse finished rounds and then he left"


def test_policies_run_beside_each_other_and_are_compared_again_from_the_store(tmp_path, command):
    out = tmp_path / "beside.csv"
    audit = ("audit", "--prompt", PROMPT, "--model", "tiny", "--steps", 6, "--lam", 1)
    code, text, _ = command(*audit, "--policy", "vanilla,coft", "--out", out, "--json")
    assert code == 0
    found = json.loads(text)
    assert [chain["policy"] for chain in found["chains"]] == ["vanilla", "coft"]
    ids = [chain["session_id"] for chain in found["chains"]]
    assert len(list(csv.DictReader(out.open(newline="", encoding="utf-8")))) == 2 * len(found["rows"])
    _, text, _ = command("compare", *ids, "--json")
    again = json.loads(text)
    for chain in (*found["chains"], *again["chains"]):
        del chain["seconds_per_token"]
    assert again == found
    code, text, _ = command("compare", f"{ids[0]}:{found['chains'][0]['branch_id']}", ids[1])
    assert code == 0
    assert f"1 and 2: {found['pairs'][0]['sentence']}" in text
    assert text.count("\n   ") >= len(found["rows"])


def test_what_cannot_be_compared_or_run_is_one_sentence(command):
    audit = ("audit", "--prompt", PROMPT, "--model", "tiny", "--steps", 2)
    for arguments, sentence in (
        (("compare", "x", "2"), "'x' is no session"),
        (("compare", "1"), "choose 2 to 8"),
        ((*audit, "--policy", "guess"), "There is no policy 'guess'; choose one of 'coft', 'vanilla'"),
        ((*audit, "--policy", "coft,vanilla", "--until", "steps:1"), "--until stops one chain"),
    ):
        code, _, error = command(*arguments)
        assert code == 1
        assert sentence in error
