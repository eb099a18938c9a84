"""Attribute swaps from the command line under other methods than COFT."""

import json

SWAP = ("swap", "--prompt", "He is a nurse", "--pronouns", "she", "--model", "tiny", "--steps", "2")


def test_a_swap_is_compared_under_any_method_and_the_output_names_it(command):
    code, shown, _ = command(*SWAP, "--policy", "sdd", "--set", "decay=20")
    assert code == 0
    assert "Self-debiasing (uncertified:" in shown
    _, text, _ = command(*SWAP, "--policy", "sdd", "--set", "decay=20", "--json")
    made = json.loads(text)
    assert len(made["variants"]) == 2
    assert made["variants"][0]["policy"]["text"] != ""


def test_a_policy_that_does_not_exist_is_refused_with_those_that_do(command):
    code, _, error = command(*SWAP, "--policy", "other")
    assert code == 2
    assert "'sdd'" in error
