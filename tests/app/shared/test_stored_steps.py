"""Steps that policies make come back from the store as they were."""

from pathlib import Path

import coft_core as cc
from coft_core.model.fake import tiny_model
from db.audits import SessionFields
from db.database import Database
from db.sessions import SessionsRepository


def test_a_step_comes_back_from_the_store_with_its_logits_or_without(tmp_path: Path) -> None:
    options = {"spans": [cc.Span(4, 11, "age")], "max_new_tokens": 3}
    with Database(f"sqlite:///{tmp_path / 'audit.db'}") as database:
        sessions = SessionsRepository(database)
        for keep_logits in (True, False):
            for policy in (cc.CoftPolicy(), cc.FactorizedCoftPolicy()):
                run = cc.generate(tiny_model(), "the old man said", policy, keep_logits=keep_logits, **options)
                branch = sessions.create(_fields(run.prompt), run.spans).active_branch_id
                for step in run.steps:
                    sessions.append_step(branch, step)
                assert sessions.chain(branch) == run.steps
                logits = {index: cc.StoredLogits.from_bytes(data) for index, data in sessions.logits(branch).items()}
                assert logits == ({step.index: step.logits for step in run.steps} if keep_logits else {})


def _fields(prompt: str) -> SessionFields:
    words = dict.fromkeys(
        ("name", "model", "model_revision", "policy", "fingerprint_digest", "certificate"), "told elsewhere"
    )
    numbers = {"lam": 0.6, "alpha": 0.1, "temperature": 1.0, "top_p": 1.0, "top_k": 0, "seed": 0, "max_new_tokens": 3}
    return SessionFields(prompt=prompt, greedy=True, policy_settings={}, fingerprint={}, **words, **numbers)
