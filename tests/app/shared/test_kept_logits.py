"""What an audit keeps of its logits is a fraction of them, and comes back bit by bit."""

from __future__ import annotations

from app.audit.service import AuditService
from app.shared.audits import AuditSettings, StartAudit
from app.shared.kept_logits import KeptLogits
from app.shared.wiring import Services
from coft_core.logit_basis import is_packed
from coft_core.stored_logits import StoredLogits
from db.sessions import SessionsRepository


def test_an_audits_logits_come_back_bit_by_bit(wired: Services, monkeypatch) -> None:
    plain: list[bytes] = []
    append = SessionsRepository.append_step

    def noted(self, branch_id, step, *rest):
        plain.append(step.logits.to_bytes())
        append(self, branch_id, step, *rest)

    monkeypatch.setattr(SessionsRepository, "append_step", noted)
    view = wired[AuditService].start(StartAudit("The nurse said that he", AuditSettings(model="tiny")))
    for _ in range(3):
        wired[AuditService].step(view.session_id)
    rows = wired[SessionsRepository].logits(view.branch_id)
    assert len(rows) == 3
    assert all(map(is_packed, rows.values()))
    assert all(2 * len(row) < len(StoredLogits.from_bytes(kept).values)
               for row, kept in zip(rows.values(), plain, strict=True))  # fmt: skip
    assert list(wired[KeptLogits].of(view.branch_id).values()) == plain
    assert wired[KeptLogits].of(view.branch_id, first=2) == {2: plain[2]}
