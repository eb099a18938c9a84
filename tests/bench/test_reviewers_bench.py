"""The reviewers' benchmark: what it counts, and that made-up times are called so."""

import json

import torch
from torch import nn

from bench.reviewers import MADE_UP, ForwardClock, Stepped, figures, report


class Echo(nn.Module):
    def forward(self, input_ids):
        return input_ids


def test_forwards_are_counted_with_their_processor_time():
    clock, module = ForwardClock(), Echo()
    clock.attach(module)
    for _ in range(3):
        module(input_ids=torch.zeros(2, 1, dtype=torch.long))
    assert clock.count == 3
    assert clock.processor >= 0


def test_only_forwards_of_one_token_are_made_to_last(monkeypatch):
    slept = []
    monkeypatch.setattr("bench.reviewers.time.sleep", slept.append)
    clock, module = ForwardClock(least=1000.0), Echo()
    clock.attach(module)
    module(input_ids=torch.zeros(1, 7, dtype=torch.long))
    assert slept == []
    module(input_ids=torch.zeros(1, 1, dtype=torch.long))
    assert len(slept) == 1
    assert 0 < slept[0] <= 1000.0


def test_the_report_says_that_a_forward_is_made_up_only_where_it_is(capsys):
    rounds = figures([Stepped(0.02, 1.0, 2.0, 4.0), Stepped(0.04, 3.0, 6.0, 8.0)])
    assert rounds["processor_ms_per_step_rest"] == {"median": 4.0, "min": 2.0, "max": 6.0, "n": 2}
    ratio = {"median": 0.5, "min": 0.4, "max": 0.6, "n": 2}
    found = {"alone": rounds, "beside": rounds, "speed_of_each_over_alone": ratio, "first_token_seconds": ratio}
    report(found, 8, 0.0)
    plain = capsys.readouterr().out
    report(found, 8, 20.0)
    made_up = capsys.readouterr().out
    assert MADE_UP.capitalize() not in plain
    assert made_up.splitlines()[0].startswith(MADE_UP.capitalize())
    assert "speed of each of 8 over one alone: 0.5 [0.4, 0.6], n = 2" in plain
    json.dumps(found)
