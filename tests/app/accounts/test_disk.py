"""What an account stores counts to it: it alone is refused more at its bound, and admins see who takes how much."""

from secrets import token_hex

import pytest

from app.accounts.disk import DiskService
from app.accounts.projects import ProjectService
from app.accounts.service import AccountService
from app.audit.service import AuditService
from app.hosting.limits import DiskRoom
from app.jobs.service import JobService
from app.lists.service import UserListService
from app.lists.upload import ParsedUserList
from app.shared.audits import AuditSettings, StartAudit
from app.shared.errors import ServiceError
from app.shared.visitors import Visitor, answering
from coft_core.types import Example
from db.disk import DiskRepository
from db.prompt_sets import PromptRow, PromptSetsRepository
from tests.app.accounts.test_permissions import called

ASKED = StartAudit("He said", AuditSettings(model="tiny", max_new_tokens=4, top_p=1.0))


def visitor(served, name):
    account = served.wired[AccountService].named(name)
    return Visitor(account.name, "", account, served.wired[ProjectService].asked(account))


@pytest.fixture
def bounded(served, monkeypatch):
    """A prompt set of a lead, which alone takes more than the megabyte that each account may have."""
    room = served.wired[DiskRoom]
    monkeypatch.setattr(room, "_each", 1_000_000)
    room._roomy_until.clear()
    # What was measured within the last minute does not count these rows.
    monkeypatch.setattr(served.wired[DiskService], "_measured", (0.0, {}))
    prompts = PromptSetsRepository(served.wired.database)
    with answering(visitor(served, "the lead")):
        kept = prompts.add("large", "large.csv", "0", [PromptRow(2, Example(token_hex(1_000_000)))])
    yield kept.id
    with answering(visitor(served, "the lead")):
        if prompts.existing([kept.id]):
            prompts.delete(kept.id)


def test_an_account_at_its_bound_is_refused_in_a_sentence_and_others_go_on(served, bounded):
    wired = served.wired
    audits, jobs = wired[AuditService], wired[JobService]
    with answering(visitor(served, "the reviewer")):
        begun = audits.start(ASKED).session_id
    terms = ParsedUserList("terms.csv", (), (), 0)
    with answering(visitor(served, "the lead")):
        for more in (
            lambda: audits.start(ASKED),
            lambda: jobs.submit("kind", "title", lambda _: None),
            lambda: wired[UserListService].add("list", terms),
        ):
            with pytest.raises(ServiceError, match=r"the lead has made takes 2 MB .* 1: delete .* ask an admin"):
                more()
        # What was begun goes on, and counts to whom it is.
        before = wired[DiskRepository].of_account(visitor(served, "the lead").account.id)
        assert len(list(audits.run(begun))) == 4
        assert wired[DiskRepository].of_account(visitor(served, "the lead").account.id) == before
    with answering(visitor(served, "the reviewer")):
        assert jobs.wait(jobs.submit("kind", "title", lambda _: None)).status == "done"


def test_uploads_are_refused_to_the_account_and_not_to_its_address(served, bounded):
    with served.client("lead") as lead, served.client("reviewer") as reviewer:
        files = {"files": ("a.csv", b"prompt\nHe said\n")}
        refused = lead.post("/gradio_api/upload", files=files)
        assert (refused.status_code, "COFT_DISK_MB_PER_ACCOUNT" in refused.text) == (507, True)
        assert reviewer.post("/gradio_api/upload", files=files).status_code == 200
        with answering(visitor(served, "the lead")):
            PromptSetsRepository(served.wired.database).delete(bounded)
        assert lead.post("/gradio_api/upload", files=files).status_code == 200


def test_what_a_job_makes_is_counted_to_who_began_it_and_admins_alone_see_it(served, bounded):
    wired = served.wired
    jobs, prompts = wired[JobService], PromptSetsRepository(wired.database)
    made = []

    def work(_):
        made.append(prompts.add("made", "made.csv", "1", [PromptRow(2, Example("p" * 100_000))]).id)

    reviewer = visitor(served, "the reviewer")
    before = wired[DiskRepository].of_account(reviewer.account.id)
    with answering(reviewer):
        assert jobs.wait(jobs.submit("kind", "title", work)).status == "done"
    assert wired[DiskRepository].of_account(reviewer.account.id) > before + 100_000
    with served.client("admin") as client:
        listed, use = called(client, "list_accounts"), called(client, "disk_use")
    assert '"stored_bytes"' in listed
    assert all(word in use for word in ('"the lead"', '"prompt sets"', '"others"'))
    with answering(reviewer):
        prompts.delete(made[0])
    with served.client("lead") as client:
        assert client.post("/gradio_api/call/disk_use", json={"data": []}).status_code == 403
