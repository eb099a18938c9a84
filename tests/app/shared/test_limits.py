"""What one visitor does leaves the others their share: models, jobs, places in the queue, uploads and live chains."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from secrets import token_hex
from threading import Event
from types import SimpleNamespace

import pytest
from starlette.requests import HTTPConnection

from app.audit.service import AuditService
from app.bootstrap import services
from app.hosting.limits import DiskRoom, OfferedModels
from app.hosting.model_host import ModelHost
from app.hosting.rollouts import RolloutPool
from app.jobs.service import JobService
from app.serving.gate import HOUR, UploadShares
from app.serving.gradio_changes import share_queue
from app.settings import Settings
from app.shared.audits import AuditSettings, StartAudit
from app.shared.errors import ServiceError
from app.shared.visitors import Visitor, answering
from coft_core.errors import ModelLoadError
from coft_core.types import Example
from db.prompt_sets import PromptRow, PromptSetsRepository
from tests.conftest import load_tiny

ONE, OTHER = Visitor(key="1" * 32), Visitor(key="2" * 32)


def asking(address, path="/gradio_api/upload", size=0):
    headers = [(b"content-length", str(size).encode()), (b"host", b"localhost")]
    return HTTPConnection(
        {"type": "http", "method": "POST", "path": path, "headers": headers, "client": (address, 1),
         "query_string": b"", "server": ("localhost", 80), "scheme": "http"}
    )  # fmt: skip


def test_a_server_with_a_list_loads_what_it_lists_and_answers_for_all_else_alike(tmp_path):
    (tmp_path / "models" / "one").mkdir(parents=True)
    (tmp_path / "secret").mkdir()
    (tmp_path / "models" / "link").symlink_to(tmp_path / "secret")
    offered = OfferedModels(f"demo, {tmp_path / 'models'}, trusted/")
    for name in ("demo", str(tmp_path / "models" / "one"), "trusted/model"):
        offered.require(name)
    said = set()
    refused = (
        "/root", "/nonexistent", str(tmp_path / "secret"), f"{tmp_path}/models/../secret", "trusted/../../etc",
        str(tmp_path / "models" / "link"), "stranger/model", "trusted", "~/models", "./demo",
    )  # fmt: skip
    for name in refused:
        with pytest.raises(ModelLoadError) as error:
            offered.require(name)
        said.add(str(error.value).replace(repr(name), "NAME"))
    assert len(said) == 1
    OfferedModels("").require("/anything")


def test_a_model_that_is_not_offered_reaches_no_loader_and_costs_nobody_a_loaded_one():
    asked = []

    def loader(name, **options):
        asked.append(name)
        return load_tiny(name)

    host = ModelHost(capacity=1, loader=loader, offered=OfferedModels("demo"))
    model = host.get("demo")
    for call in (lambda: host.get("/root"), lambda: host.scorer("stranger/scorer", "demo")):
        with pytest.raises(ModelLoadError, match="COFT_MODELS"):
            call()
    assert asked == ["demo"]
    assert host.loaded("demo") is model


def test_a_visitor_has_so_many_jobs_and_the_others_have_as_many(tmp_path):
    settings = Settings(database_url=f"sqlite:///{tmp_path / 's.db'}", pipeline="none", jobs_per_visitor=2)
    with services(settings, loader=load_tiny) as wired:
        runner, go = wired[JobService], Event()

        def submit():
            return runner.submit("kind", "title", lambda _: go.wait() and None)

        with answering(ONE):
            first = [submit(), submit()]
            with pytest.raises(ServiceError, match="COFT_JOBS_PER_VISITOR"):
                submit()
        with answering(OTHER):
            submit()
        submit()
        go.set()
        for job in first:
            runner.wait(job)
        with answering(ONE):
            runner.wait(submit())


def test_a_store_as_large_as_it_may_be_takes_no_upload_job_or_session_and_goes_on_when_there_is_room(tmp_path):
    settings = Settings(database_url=f"sqlite:///{tmp_path / 's.db'}", pipeline="none", disk_mb=1)
    with services(settings, loader=load_tiny) as wired:
        asked = StartAudit("He said", AuditSettings(model="tiny", max_new_tokens=4, top_p=1.0))
        begun = wired[AuditService].start(asked)
        prompts = PromptSetsRepository(wired.database)
        kept = prompts.add("set", "set.csv", "0", [PromptRow(2, Example(token_hex(1_000_000)))])
        upload, jobs = asking("10.0.0.1", size=10), wired[JobService]
        shares = UploadShares(10, room=wired[DiskRoom])
        status, said = shares.problem(upload, 10**7)
        assert (status, "COFT_DISK_MB" in said) == (507, True)
        for more in (lambda: jobs.submit("kind", "title", lambda _: None), lambda: wired[AuditService].start(asked)):
            with pytest.raises(ServiceError, match="allows it 1: delete"):
                more()
        # What was begun before goes on.
        assert len(list(wired[AuditService].run(begun.session_id))) == 4
        prompts.delete(kept.id)
        assert shares.problem(upload, 10**7) is None
        assert jobs.wait(jobs.submit("kind", "title", lambda _: None)).status == "done"


def test_names_that_nothing_is_loaded_by_leave_nothing_behind():
    def loader(name, **options):
        raise ModelLoadError("no such model")

    host = ModelHost(loader=loader)
    for number in range(50):
        with pytest.raises(ModelLoadError):
            host.get(f"misspelt {number}")
    assert len(host._loading) == 0


def test_one_address_fills_its_part_of_the_queue_and_the_others_are_taken():
    waits = SimpleNamespace(queue=[])

    async def push(body, request, username):
        waits.queue.append(SimpleNamespace(request=request))
        return True, "id", "success"

    queue = SimpleNamespace(push=push, max_size=64, event_queue_per_concurrency_id={"all": waits})
    share_queue(queue)

    async def ask(address):
        return (await queue.push(None, asking(address), None))[2]

    # In a thread of its own: a driver of browsers may keep a loop running in this one.
    with ThreadPoolExecutor(1) as own:
        answers = [own.submit(asyncio.run, ask("10.0.0.1")).result() for _ in range(64)]
        other = own.submit(asyncio.run, ask("10.0.0.2")).result()
    assert answers.count("success") == 16
    assert set(answers[16:]) == {"queue_full"}
    assert other == "success"


def test_an_address_uploads_so_much_an_hour_and_another_one_as_much():
    now = [0.0]
    shares = UploadShares(10, lambda: now[0])
    assert shares.problem(asking("10.0.0.1", size=9_000_000), 10**7) is None
    status, said = shares.problem(asking("10.0.0.1", size=2_000_000), 10**7)
    assert (status, "COFT_UPLOADS_MB_PER_HOUR" in said) == (429, True)
    assert shares.problem(asking("10.0.0.2", size=9_000_000), 10**7) is None
    assert shares.problem(asking("10.0.0.1", "/gradio_api/queue/join", 9_000_000), 10**7) is None
    now[0] = HOUR
    assert shares.problem(asking("10.0.0.1", size=9_000_000), 10**7) is None


class Kept:
    """What a pool keeps."""

    closed = False

    def close(self):
        self.closed = True


def test_a_visitor_who_opens_many_texts_closes_only_own_ones():
    pool = RolloutPool(4, ModelHost().memory)
    with answering(OTHER):
        pool.put("hers", hers := Kept())
    with answering(ONE):
        opened = [Kept() for _ in range(20)]
        for number, rollout in enumerate(opened):
            pool.put(number, rollout)
    assert not hers.closed
    assert [rollout.closed for rollout in opened] == [True] * 17 + [False] * 3
