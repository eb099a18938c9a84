"""The endpoints as another program calls them."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
import pytest
from gradio_client import Client, handle_file
from gradio_client.exceptions import AppError

from app.bootstrap import FEATURES
from app.calibrate.service import CalibrationService, request_from_json
from app.jobs.service import JobService
from app.shared.wiring import Services
from bench.reference import endpoints
from coft_core.conformal.drift import DriftReport
from db.prompt_sets import PromptSetsRepository
from tests.story.model import PROMPT


@pytest.fixture(scope="module")
def connected(address: str) -> Client:
    return Client(address, verbose=False)


@pytest.fixture
def client(connected: Client, services: Services) -> Client:
    return connected


def test_every_endpoint_that_is_offered_is_documented_with_its_arguments(client: Client):
    sections = dict(re.findall(r"^## `(/\w+)`$(.*?)(?=^## |\Z)", endpoints(), re.MULTILINE | re.DOTALL))
    offered = client.view_api(print_info=False, return_format="dict")["named_endpoints"]
    assert sorted(sections) == sorted(offered)
    for name, endpoint in offered.items():
        arguments = re.findall(r"^\| `(\w+)` \|", sections[name], re.MULTILINE)
        assert arguments == [parameter["parameter_name"] for parameter in endpoint["parameters"]], name


def test_no_page_makes_browsers_build_what_programs_call(client: Client, address: str):
    offered = {name.strip("/") for name in client.view_api(print_info=False, return_format="dict")["named_endpoints"]}
    for page in (feature.page.path for feature in FEATURES if feature.page and not feature.page.for_admins):
        built = httpx.get(f"{address}/config", params={"page": page}).json()
        assert built["current_page"] == page
        assert "api" not in {component["type"] for component in built["components"]}, page
        assert offered.isdisjoint(event["api_name"] for event in built["dependencies"]), page


def test_the_address_of_the_endpoints_lists_them(client: Client, address: str):
    listed = httpx.get(f"{address}/endpoints", follow_redirects=True)
    assert listed.json()["named_endpoints"].keys() == client.view_api(return_format="dict")["named_endpoints"].keys()


def test_agents_are_not_served_unless_they_are_asked_for(client: Client, address: str):
    hello = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    accepted = {"Accept": "application/json, text/event-stream"}
    for path in ("/gradio_api/mcp/", "/gradio_api/mcp", "/gradio_api/mcp/sse", "/gradio_api/mcp/schema"):
        assert httpx.post(address + path, json=hello, headers=accepted).status_code in (404, 405), path
        assert "tools" not in httpx.get(address + path, headers=accepted).text, path


def test_an_audit_over_the_endpoints(client: Client):
    spans = client.predict(PROMPT, api_name="/detect_spans")
    assert [PROMPT[span["start"] : span["end"]] for span in spans] == ["uncle", "he"]
    session = client.predict(PROMPT, spans[1:], {"calibration_id": 1, "max_new_tokens": 5}, api_name="/start_audit")
    assert session["masked"].count("<mask>") == 1
    first = client.predict(session["session_id"], api_name="/step")["step"]
    assert first["step"] == 1
    assert first["certified"] == (min(first["p_fused"], first["p_masked"]) >= first["tau"])
    whole = client.predict(session["session_id"], api_name="/run_to_end")
    assert [step["step"] for step in whole["steps"]] == [1, 2, 3, 4, 5]
    forked = client.predict(session["session_id"], whole["branch_id"], 2, " she", api_name="/fork")
    assert [step["token"] for step in forked["steps"]][1:] == [" she"]
    assert forked["steps"][-1]["chosen_by"] == "reviewer"
    assert client.predict("uncle", api_name="/list_sessions")[0]["session_id"] == session["session_id"]
    report = client.predict(session["session_id"], api_name="/export_csv")
    assert Path(report).read_text("utf-8").startswith("session_id,step")


def test_any_method_is_listed_and_used_with_its_parameters_over_the_endpoints(client: Client):
    listed = {item["key"]: item for item in client.predict(api_name="/policies")}
    decay = next(own for own in listed["sdd"]["parameters"] if own["name"] == "decay")
    assert (decay["default"], decay["low"], decay["high"], decay["strength"]) == (50.0, 0.0, 500.0, True)
    asked = {"policy": "sdd", "parameters": {"decay": 20, "descriptions": ["one", "two"]}}
    session = client.predict(PROMPT, None, asked, api_name="/start_audit")
    assert session["settings"]["policy"] == "sdd"
    assert session["settings"]["parameters"] == {"descriptions": ["one", "two"], "decay": 20}
    for parameters, sentence in (
        ({"decay": 900}, "Decay is 900.0; give a number"),
        ({"omega": 1}, "no parameter 'omega'"),
    ):
        with pytest.raises(AppError, match=sentence):
            client.predict(PROMPT, None, {**asked, "parameters": parameters}, api_name="/start_audit")


def test_a_calibration_takes_columns_and_shares_from_json(client: Client, services: Services, tmp_path: Path):
    path = tmp_path / "set.csv"
    path.write_text("question,answer\nThe nurse said that he, left\n", "utf-8")
    settings = {
        "columns": {"prompt": "question", "reference": "answer"}, "mask_layout": "factorized",
        "masked_families": ["gender"], "alpha_by_family": {"gender": 0.05},
    }  # fmt: skip
    client.predict(handle_file(path), settings, api_name="/calibrate")
    payload = services[JobService].list()[0].payload
    assert request_from_json(payload["request"]).alpha_by_family == (("gender", 0.05),)
    assert services[PromptSetsRepository].rows(payload["prompt_set_id"])[0].example.prompt == "The nurse said that he"


def test_a_finished_calibration_is_read_and_watched_over_the_endpoints(client: Client, services: Services, monkeypatch):
    as_calibrated = client.predict(1, api_name="/read_calibration")
    assert as_calibrated["alpha"] == 0.1
    other = client.predict(1, 0.05, "pooled", 4, api_name="/read_calibration")
    assert (other["alpha"], other["estimator"], other["bins"][0]["label"]) == (0.05, "pooled", "1–4")
    assert other["bins"][0]["tau"] < as_calibrated["bins"][0]["tau"]
    watched = DriftReport("watch", 2, 60, 8, 9.0, 9.0, (0.02, 0.04), 0.03, 0.8)
    monkeypatch.setattr(services[CalibrationService], "drift", lambda number: watched)
    report = client.predict(1, api_name="/drift")
    assert report["status"] == "watch"
    assert len(report["p_values"]) == report["audits"]
    assert report["sentence"].startswith("Recent audits begin to differ")


def test_an_unknown_setting_is_refused_with_the_known_ones(client: Client):
    with pytest.raises(AppError, match=r"There is no setting 'lamda'.*lam"):
        client.predict(PROMPT, None, {"lamda": 0.5}, api_name="/start_audit")
