"""A process killed in the middle of a run loses no step that it had shown."""

import os
import subprocess
import sys
from pathlib import Path

from gradio_client import Client, handle_file

from app.audit.service import AuditService
from app.batch.service import BatchService
from app.bootstrap import services
from app.settings import Settings
from app.shared.audits import AuditSettings, StartAudit
from coft_core.types import Span
from db.sessions import SessionsRepository
from tests.conftest import free_port, load_tiny

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import sys
from app.audit.service import AuditService
from app.bootstrap import services
from app.settings import Settings
from tests.conftest import load_tiny
with services(Settings(database_url=sys.argv[1], pipeline="none"), loader=load_tiny) as wired:
    for step in wired[AuditService].run(int(sys.argv[2])):
        print(step.index, step.token_id, flush=True)
"""


def test_every_step_that_was_shown_is_there_and_the_session_goes_on_where_it_was(settings):
    request = StartAudit(
        "He said that", AuditSettings(model="tiny", max_new_tokens=40, top_p=1.0), (Span(0, 2, "gender"),)
    )
    with services(settings, loader=load_tiny) as wired:
        session_id = wired[AuditService].start(request).session_id
        whole_id = wired[AuditService].start(request).session_id
        list(wired[AuditService].run(whole_id))
        whole = [s.token_id for s in wired[AuditService].view(whole_id).steps]
    wanted = min(5, len(whole) - 1)
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, settings.database_url, str(session_id)],
        cwd=ROOT, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    shown = [process.stdout.readline().split() for _ in range(wanted)]
    process.kill()
    rest, _ = process.communicate()
    shown += [line.split() for line in rest.splitlines() if len(line.split()) == 2]
    with services(settings, loader=load_tiny) as wired:
        stored = wired[AuditService].view(session_id).steps
        assert [[str(s.index), str(s.token_id)] for s in stored[: len(shown)]] == shown
        list(wired[AuditService].run(session_id))
        assert [s.token_id for s in wired[AuditService].view(session_id).steps] == whole


def stored_job(url, batch_id):
    with services(Settings(database_url=url, pipeline="none"), loader=load_tiny) as wired:
        view = wired[BatchService].view(batch_id)
        return view.job.status, view.resumable, view.counts


def test_a_terminated_server_stops_its_jobs_which_can_be_resumed(tmp_path):
    port, url = free_port(), f"sqlite:///{tmp_path / 'store.db'}"
    prompts = tmp_path / "prompts.csv"
    prompts.write_text("prompt\n" + "".join(f"He said {number} times that\n" for number in range(200)))
    process = subprocess.Popen(
        [sys.executable, "-m", "app", "serve", "--port", str(port)], cwd=ROOT, stdout=subprocess.PIPE,
        env={**os.environ, "COFT_DATABASE_URL": url, "COFT_PIPELINE": "none"}, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert any(line.startswith("COFT Audit runs at") for line in process.stdout)
        client = Client(f"http://127.0.0.1:{port}", verbose=False)
        settings = {"name": "long", "max_new_tokens": 64}
        client.submit(handle_file(prompts), settings, api_name="/run_batch")
        with services(Settings(database_url=url, pipeline="none"), loader=load_tiny) as wired:
            while not wired[SessionsRepository].list():
                pass
        process.terminate()
        # Whoever stops a container kills it after ten seconds.
        assert process.wait(10) == 0
    finally:
        process.kill()
        process.stdout.close()
    status, resumable, counts = stored_job(url, 1)
    assert (status, resumable) == ("interrupted", True)
    assert sum(counts.values()) == 200
    assert counts.get("failed", 0) == 0
