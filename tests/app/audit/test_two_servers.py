"""A session that two servers step: whoever comes second is told so in one sentence, and nothing is lost."""

import pytest

from app.audit.live import STEPPED_ELSEWHERE
from app.audit.service import AuditService
from app.bootstrap import services as open_services
from app.shared.audits import AuditSettings, StartAudit
from app.shared.errors import ServiceError
from db.sessions import SessionsRepository
from tests.conftest import load_tiny


def test_a_session_that_another_server_went_on_with_says_so_and_goes_on_after_a_reload(wired):
    with open_services(wired.settings, loader=load_tiny) as other:
        view = wired[AuditService].start(StartAudit("The nurse said that he", AuditSettings(model="tiny")))
        wired[AuditService].step(view.session_id)
        other[AuditService].step(view.session_id)
        with pytest.raises(ServiceError) as refused:
            wired[AuditService].step(view.session_id)
        assert str(refused.value) == STEPPED_ELSEWHERE
        wired[AuditService].step(view.session_id)
        chain = wired[SessionsRepository].chain(view.branch_id)
        assert [step.index for step in chain] == [0, 1, 2]
