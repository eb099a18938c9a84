"""The endpoints as another program calls them."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
import pytest
from gradio_client import Client, handle_file
from gradio_client.exceptions import AppError

from app.batch.service import BatchService
from app.bootstrap import FEATURES
from app.calibrate.service import CalibrationService, request_from_json
from app.shared.jobs import JobService
from app.shared.wiring import Services
from app.tune.service import TuningService
from bench.reference import endpoints
from coft_core.conformal.drift import DriftReport
from db.prompt_sets import PromptSetsRepository
from tests.app.tune.test_tuning_runs import tuning_rows
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


@pytest.mark.slow
def test_methods_are_tuned_over_the_endpoints(client: Client, services: Services, tmp_path: Path):
    path = tmp_path / "tune.jsonl"
    path.write_text(tuning_rows(), "utf-8")
    with pytest.raises(AppError, match="must be a list of names"):
        client.predict(handle_file(path), {"policies": "sdd"}, api_name="/tune")
    job = client.predict(handle_file(path), {"policies": ["coft", "sdd"], "temperature": 0.7}, api_name="/tune")
    while client.predict(job["job_id"], api_name="/job")["status"] != "done":
        pass
    assert services[TuningService].view(job["job_id"]).settings.temperature == 0.7
    (found,) = client.predict(api_name="/list_tunings")
    assert found["id"] == job["job_id"]
    assert [own["policy"] for own in found["methods"]] == ["coft", "sdd"]


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


def test_masks_and_whole_chains_over_the_endpoints(client: Client):
    settings = {"mask_layout": "factorized", "mask_mode": "soft", "mask_hint": "Emily", "whitelist": ["nurse"]}
    session = client.predict("The German nurse said he", None, settings, api_name="/start_audit")
    assert session["masked_branches"] == ["gender", "nationality"]
    assert session["masked"].count("Emily") == 2
    step = client.predict(session["session_id"], api_name="/step")["step"]
    assert [part["family"] for part in step["families"]] == ["gender", "nationality"]
    assert all("refused_by" in row for row in step["candidates"])
    shares = client.predict(session["session_id"], api_name="/contributions")
    assert shares["steps"] == [1]
    assert [(span["category"], len(span["log_ratio"])) for span in shares["spans"]] == [
        ("nationality", 1),
        ("gender", 1),
    ]
    plain = client.predict(PROMPT, None, {"calibration_id": 1, "max_new_tokens": 2}, api_name="/start_audit")
    chain = client.predict(plain["session_id"], api_name="/run_to_end")["chain"]
    assert (chain["steps"], chain["sequence"]["certified"], chain["union"]["steps_charged"]) == (2, True, 8)


def test_an_attribute_is_swapped_over_the_endpoint(client: Client):
    exchange = {"pronouns": ["she", "he"], "max_new_tokens": 3, "step": 2}
    found = client.predict(PROMPT, exchange, None, {"calibration_id": 1}, api_name="/swap_attribute")
    assert [item["label"] for item in found["variants"]] == ["as typed (he)", "she"]
    assert [len(item["policy"]["steps"]) for item in found["variants"]] == [3, 3]
    assert found["step"] == 2
    assert found["largest"]["factual"] > found["largest"]["fused"] > found["largest"]["masked"] == 0
    assert client.predict("nurse", api_name="/list_sessions")[0]["session_id"] == 1
    with pytest.raises(AppError, match="There is no option"):
        client.predict(PROMPT, {"pronoun": "she"}, api_name="/swap_attribute")


def test_spans_and_settings_may_be_left_out(client: Client):
    session = client.predict(PROMPT, api_name="/start_audit")
    assert len(session["spans"]) == 2
    assert session["certificate"] == "uncertified: no calibration"


def test_a_calibration_over_the_endpoints(client: Client, tmp_path: Path):
    path = tmp_path / "set.csv"
    path.write_text("prompt,reference\nThe nurse said that he, left\nThe nurse said that she, left\n", "utf-8")
    job = client.predict(handle_file(path), {"alpha": 0.2}, api_name="/calibrate")
    assert job["status"] in ("queued", "running", "done")
    assert job["job_id"] >= 1
    assert client.predict(job["job_id"], api_name="/job")["job_id"] == job["job_id"]


def test_finished_calibrations_are_listed(client: Client, services: Services):
    listed = client.predict(api_name="/list_calibrations")
    assert [item["calibration_id"] for item in listed] == [item.id for item in services[CalibrationService].list()]


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


def test_a_batch_is_run_and_summed_up_over_the_endpoints(client: Client, services: Services, tmp_path: Path):
    path = tmp_path / "set.csv"
    path.write_text("question,group\nDoes he? it said,men\nDoes she?,women\nDo they?,women\n", "utf-8")
    settings = {
        "columns": {"prompt": "question"}, "lam": 0.4, "same_seed": True, "greedy": True, "max_new_tokens": 3,
    }  # fmt: skip
    made = client.predict(handle_file(path), settings, api_name="/run_batch")
    assert (made["settings"]["lam"], made["same_seed"], made["name"]) == (0.4, True, "set")
    services[JobService].wait(services[BatchService].view(made["batch_id"]).job.id)
    rule = {"selected": "filed", "other": r"\.\.", "regex": True}
    found = client.predict(made["batch_id"], rule, api_name="/batch_summary")
    assert [row["state"] for row in found["rows"]] == ["finished"] * 3
    assert [group["group"] for group in found["groups"]] == ["men", "women"]
    assert [(row["group"], row["rate"], row["ratio"]) for row in found["impact"]["groups"]] == [
        ("men", 1.0, 1.0),
        ("women", 0.0, 0.0),
    ]
    with pytest.raises(AppError, match="selected is required"):
        client.predict(made["batch_id"], {"other": "No"}, api_name="/batch_summary")


def test_a_set_is_compared_and_read_over_the_endpoints(client: Client, services: Services, tmp_path: Path):
    path = tmp_path / "people.csv"
    path.write_text("question\nDoes he?\nDoes she?\n", "utf-8")
    columns = [{"policy": "vanilla"}, {"policy": "dexperts", "parameters": {"weight": 3}}]
    settings = {"columns": {"prompt": "question"}, "compare": columns, "temperature": 0.7, "max_new_tokens": 3}
    made = client.predict(handle_file(path), settings, api_name="/run_comparison")
    assert [own["settings"]["policy"] for own in made["columns"]] == ["vanilla", "dexperts"]
    assert made["columns"][1]["settings"]["parameters"] == {"weight": 3.0}
    assert {own["settings"]["temperature"] for own in made["columns"]} == {0.7}
    for job in services[JobService].list():
        services[JobService].wait(job.id)
    found = client.predict(made["comparison_id"], api_name="/comparison_summary")
    assert [len(row["cells"]) for row in found["rows"]] == [2, 2]
    assert found["columns"][1]["means"]["mean_tv_factual"]["contexts"] == 2
    with pytest.raises(AppError, match='The setting "compare" must list the columns'):
        client.predict(handle_file(path), {"policy": "coft"}, api_name="/run_comparison")


def test_an_unknown_setting_is_refused_with_the_known_ones(client: Client):
    with pytest.raises(AppError, match=r"There is no setting 'lamda'.*lam"):
        client.predict(PROMPT, None, {"lamda": 0.5}, api_name="/start_audit")


def test_word_lists_over_the_endpoints(client: Client, tmp_path: Path):
    path = tmp_path / "hiring.csv"
    path.write_text("term,family,action\nrounds,race,mask\nuncle,,keep\n", "utf-8")
    made = client.predict(handle_file(path), {"name": "mine"}, api_name="/add_user_list")
    assert made["terms"][1] == {"term": "uncle", "family": "other", "action": "keep"}
    (listed,) = client.predict(api_name="/user_lists")
    assert (listed["name"], listed["terms"]) == ("mine", 2)
    spans = client.predict(PROMPT, {"user_list_id": made["user_list_id"]}, api_name="/detect_spans")
    assert [(s["source"], s["kept"]) for s in spans] == [("list", True), ("list", False), ("lexicon", False)]
    with pytest.raises(AppError, match="already"):
        client.predict(handle_file(path), {"name": "mine"}, api_name="/add_user_list")
    client.predict("mine", api_name="/remove_user_list")
    assert client.predict(api_name="/user_lists") == []


def test_the_masked_families_are_a_setting_of_the_endpoints(client: Client):
    prompt = "Emily met a blind friend and Emily left"
    spans = client.predict(prompt, api_name="/detect_spans")
    assert [s["suggested"] for s in spans] == [True, False, True]
    masked = {"masked_families": ["name"]}
    spans = client.predict(prompt, masked, api_name="/detect_spans")
    assert [s["suggested"] for s in spans] == [False, True, False]
    session = client.predict(prompt, None, masked, api_name="/start_audit")
    assert [s["suggested"] for s in session["spans"]] == [False, True, False]


def test_verdicts_over_the_endpoints(client: Client):
    steps = (4, 6)
    made = client.predict(1, " A.  Lee ", "unfair", 3, *steps, "a\nb", "pronoun", api_name="/add_verdict")
    assert (made["entry"], made["reviewer"], made["first_step"], made["last_step"]) == (1, "A. Lee", *steps)
    client.predict(1, "R. Osei", "fair", 3, *steps, api_name="/add_verdict")
    client.predict(1, "R. Osei", None, api_name="/add_verdict")
    found = client.predict(1, api_name="/list_verdicts")
    assert [(item["target"], item["status"]) for item in found["targets"]] == [
        ("session", "withdrawn"),
        ("span", "disputed"),
    ]
    assert [entry["note"] for entry in found["log"]] == ["a\nb", "", ""]
    assert found["log"][1]["previous"] == found["log"][0]["digest"]
    with pytest.raises(AppError, match="There is no verdict 'bad'"):
        client.predict(1, "A. Lee", "bad", api_name="/add_verdict")
