"""A process killed in the middle of a run loses no step that it had shown."""

import itertools

from gradio_client import Client, handle_file

from app.audit.service import AuditService
from app.batch.service import BatchService
from app.bootstrap import services
from app.cli import main
from app.settings import Settings
from app.shared.audits import AuditSettings, StartAudit
from coft_core.types import Span
from db.sessions import SessionsRepository
from tests.app.children import child
from tests.conftest import free_port, load_tiny


def telling(settings, session_id):
    """Runs a session, and prints each step as it is shown."""
    with services(settings, loader=load_tiny) as wired:
        for step in wired[AuditService].run(session_id):
            print(step.index, step.token_id, flush=True)


def test_every_step_that_was_shown_is_there_and_the_session_goes_on_where_it_was(settings):
    request = StartAudit(
        "He said that", AuditSettings(model="tiny", max_new_tokens=12, top_p=1.0), (Span(0, 2, "gender"),)
    )
    with services(settings, loader=load_tiny) as wired:
        session_id = wired[AuditService].start(request).session_id
        whole_id = wired[AuditService].start(request).session_id
        list(wired[AuditService].run(whole_id))
        whole = [s.token_id for s in wired[AuditService].view(whole_id).steps]
    wanted = min(5, len(whole) - 1)
    with child(lambda: telling(settings, session_id)) as other:
        shown = [other.stdout.readline().split() for _ in range(wanted)]
        other.process.kill()
        shown += [line.split() for line in other.stdout if len(line.split()) == 2]
    with services(settings, loader=load_tiny) as wired:
        stored = wired[AuditService].view(session_id).steps
        assert [[str(s.index), str(s.token_id)] for s in stored[: len(shown)]] == shown
        list(wired[AuditService].run(session_id))
        assert [s.token_id for s in wired[AuditService].view(session_id).steps] == whole


def stored_job(url, batch_id):
    with services(Settings(database_url=url, pipeline="none"), loader=load_tiny) as wired:
        view = wired[BatchService].view(batch_id)
        return view.job.status, view.resumable, view.counts


def test_a_terminated_server_stops_its_jobs_which_can_be_resumed(tmp_path, monkeypatch):
    monkeypatch.setenv("COFT_PIPELINE", "none")
    port, url = free_port(), f"sqlite:///{tmp_path / 'store.db'}"
    prompts = tmp_path / "prompts.csv"
    prompts.write_text("prompt\n" + "".join(f"He said {number} times that\n" for number in range(200)))
    monkeypatch.setenv("COFT_DATABASE_URL", url)
    with child(lambda: main(["serve", "--mcp", "--port", str(port)])) as other:
        said = list(itertools.takewhile(lambda line: not line.startswith("COFT Audit runs at"), other.stdout))
        assert f"http://127.0.0.1:{port}/gradio_api/mcp/" in "".join(said)
        client = Client(f"http://127.0.0.1:{port}", verbose=False)
        settings = {"name": "long", "max_new_tokens": 64}
        client.submit(handle_file(prompts), settings, api_name="/run_batch")
        with services(Settings(database_url=url, pipeline="none"), loader=load_tiny) as wired:
            while not wired[SessionsRepository].list():
                pass
        other.process.terminate()
        # Whoever stops a container kills it after ten seconds.
        other.process.join(10)
        assert other.process.exitcode == 0
    status, resumable, counts = stored_job(url, 1)
    assert (status, resumable) == ("interrupted", True)
    assert sum(counts.values()) == 200
    assert counts.get("failed", 0) == 0
