"""The program as other programs see it: served with agents, on the embedded model."""

import asyncio
import base64
import json
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from mcp import ClientSession
from mcp.client.streamable_http import streamablehttp_client

from app.bootstrap import services
from app.settings import Settings
from bench.reference import offered
from tests.browser import served
from tests.conftest import prompt_set_csv

ROOT = Path(__file__).resolve().parents[2]
PROMPT = "The nurse finished rounds and then he prepared the reports"
EXAMPLES = re.findall(r"```python\n(.*?)```", (ROOT / "docs/api.md").read_text("utf-8"), re.DOTALL)
OWN = "http://127.0.0.1:7860"


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    settings = Settings(database_url=f"sqlite:///{tmp_path_factory.mktemp('store') / 'audits.sqlite3'}")
    with services(settings, owns_store=True) as wired, served(wired, agents=True) as url:
        yield url


async def _with_agent(address, calls):
    async with (
        streamablehttp_client(f"{address}/gradio_api/mcp/") as (read, write, _),
        ClientSession(read, write) as session,
    ):
        await session.initialize()
        tools = (await session.list_tools()).tools
        return tools, [await session.call_tool(name, arguments) for name, arguments in calls]


def agent(address, *calls):
    """What tools an agent is shown, and what its calls give.

    In a thread of its own, since the browser tests leave an event loop running in the main one.
    """
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(asyncio.run, _with_agent(address, calls)).result()


def answer(result):
    assert not result.isError, result.content
    (part,) = result.content
    return json.loads(part.text)


def test_an_agent_is_offered_the_endpoints_alone_and_each_tells_what_it_and_its_arguments_are(address):
    tools, _ = agent(address)
    assert sorted(tool.name for tool in tools) == [operation.name for operation in offered()]
    for tool in tools:
        assert tool.description, tool.name
        assert "Returns: " in tool.description, tool.name
        unsaid = [name for name, schema in tool.inputSchema["properties"].items() if not schema.get("description")]
        assert unsaid == [], tool.name


def test_an_agent_audits_a_prompt_with_the_embedded_calibration(address):
    _, (found, calibrations, refused) = agent(
        address, ("detect_spans", {"text": PROMPT}), ("list_calibrations", {"model": "demo"}),
        ("start_audit", {"prompt": PROMPT, "settings": {"lamda": 1}}),
    )  # fmt: skip
    assert [PROMPT[span["start"] : span["end"]] for span in answer(found) if not span["suggested"]] == ["he"]
    assert refused.isError
    assert "There is no setting 'lamda'" in refused.content[0].text
    (embedded,) = answer(calibrations)
    settings = {"calibration_id": embedded["calibration_id"], "max_new_tokens": 4}
    begun = answer(agent(address, ("start_audit", {"prompt": PROMPT, "settings": settings}))[1][0])
    whole = answer(agent(address, ("run_to_end", {"session_id": begun["session_id"]}))[1][0])
    held = sum(step["certified"] for step in whole["steps"])
    assert whole["certificate"] == f"certified at {held} of {len(whole['steps'])} steps"
    assert [step["step"] for step in whole["steps"]] == [1, 2, 3, 4]
    assert all(step["certified"] == (min(step["p_fused"], step["p_masked"]) >= step["tau"]) for step in whole["steps"])


def test_an_agent_gives_a_file_as_text(address):
    content = base64.b64encode(b"term,family,action\nrounds,race,mask\n").decode()
    given = {"file": f"data:text/csv;base64,{content}", "settings": {"name": "agents"}}
    made = answer(agent(address, ("add_user_list", given))[1][0])
    assert (made["name"], [term["term"] for term in made["terms"]]) == ("agents", ["rounds"])


def test_the_examples_of_the_documentation_do_what_they_say(address, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("prompts.csv").write_text(prompt_set_csv(), "utf-8")
    names: dict[str, Any] = {}
    for code in EXAMPLES:
        exec(compile(code.replace(OWN, address), "docs/api.md", "exec"), names)
    assert OWN in EXAMPLES[0]
    assert names["session"]["certificate"].startswith("certified")
    assert names["fork"]["branch_id"] != names["session"]["branch_id"]
    assert [(row["step"], row["token"]) for row in names["forced"]] == [("2", " she")]
    assert len(names["rows"]) == len(names["session"]["steps"]) + len(names["fork"]["steps"]) - 1
    assert (names["entry"]["reviewer"], names["entry"]["first_step"]) == ("A. Lee", 2)
    assert names["reading"]["alpha"] == 0.2
