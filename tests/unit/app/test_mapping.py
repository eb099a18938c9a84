"""Steps between the core and the store."""

import coft_core as cc
from app.shared.mapping import step_from, step_record
from coft_core.model.fake import tiny_model


def test_a_step_comes_back_from_its_record_with_its_logits_or_without():
    options = {"spans": [cc.Span(4, 11, "age")], "max_new_tokens": 3}
    for keep_logits in (True, False):
        for policy in (cc.CoftPolicy(), cc.FactorizedCoftPolicy()):
            run = cc.generate(tiny_model(), "the old man said", policy, keep_logits=keep_logits, **options)
            for step in run.steps:
                record = step_record(step)
                assert step_from(record) == step
                assert step_from(record).logits == step.logits
                assert (record.logits is not None) == keep_logits
