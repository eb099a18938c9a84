"""A feature goes with its folder, its script, its style, its module in the store and one line."""

from __future__ import annotations

import re
import shutil

import pytest

from tests.project.copies import copy_of_the_program, run, serve

STORES = {"compare": "comparisons", "swap": None}
"""The features that are removed, each with its module in the store."""
ENDPOINTS = {"compare": {"/compare_sessions", "/run_comparison", "/comparison_summary"}, "swap": {"/swap_attribute"}}


@pytest.fixture(scope="module", params=STORES)
def removed(request, tmp_path_factory):
    """The feature's name, a copy of the program without it, and what that serves."""
    name = request.param
    folder = copy_of_the_program(tmp_path_factory.mktemp(name))
    shutil.rmtree(folder / "app" / name)
    shutil.rmtree(folder / "assets" / "templates" / name, ignore_errors=True)
    for path in (folder / "assets" / "pages").glob(f"{name}*"):
        path.unlink()
    if STORES[name] is not None:
        (folder / "db" / f"{STORES[name]}.py").unlink()
    root = folder / "app" / "bootstrap.py"
    lines = root.read_text("utf-8").splitlines(keepends=True)
    left = [line for line in lines if line.strip() != f'"{name}",']
    assert len(left) == len(lines) - 1
    root.write_text("".join(left), "utf-8")
    return name, folder, serve(folder)


def test_all_other_pages_are_served_and_none_leads_to_it(removed):
    name, _, served = removed
    assert served["steps"] == 2
    assert len(served["pages"]) == 10
    # What scripts show where it leads somewhere begins hidden.
    link = rf'href=\\"\./{name}\\"(?! hidden)'
    assert not [path for path, page in served["pages"].items() if re.search(link, page)]
    scripts = " ".join(path.read_text("utf-8") for path in (removed[1] / "assets" / "pages").glob("*.js"))
    assert f'offers("{name}")' in scripts


def test_its_endpoints_are_gone_and_the_others_are_not(removed):
    name, _, served = removed
    assert ENDPOINTS[name] & set(served["endpoints"]) == set()
    assert {"/start_audit", "/step", "/run_batch", "/calibrate"} - ENDPOINTS[name] <= set(served["endpoints"])


def test_its_commands_are_gone_and_the_others_answer(removed):
    name, folder, _ = removed
    told = run(folder, "-m", "app", "--help")
    assert f"│ {name} " not in told
    assert "│ sessions " in told
    assert "he said" in run(folder, "-m", "app", "sessions", "--json")
