"""A feature goes with its folder, its script, its style, its module in the store and one line."""

from __future__ import annotations

import re
import shutil

import pytest

from tests.project.copies import copy_of_the_program, run, serve

STORES = {"compare": "comparisons", "swap": None}
"""The features that are removed, each with its module in the store.

They are removed together: that neither needs the other is what ``test_import_directions.py`` shows.
"""
ENDPOINTS = {"compare": {"/compare_sessions", "/run_comparison", "/comparison_summary"}, "swap": {"/swap_attribute"}}


@pytest.fixture(scope="module")
def removed(tmp_path_factory):
    """A copy of the program without the features, and what that serves."""
    folder = copy_of_the_program(tmp_path_factory.mktemp("removed"))
    root = folder / "app" / "bootstrap.py"
    for name, store in STORES.items():
        shutil.rmtree(folder / "app" / name)
        shutil.rmtree(folder / "assets" / "templates" / name, ignore_errors=True)
        for path in (folder / "assets" / "pages").glob(f"{name}*"):
            path.unlink()
        if store is not None:
            (folder / "db" / f"{store}.py").unlink()
        lines = root.read_text("utf-8").splitlines(keepends=True)
        left = [line for line in lines if line.strip() != f'"{name}",']
        assert len(left) == len(lines) - 1
        root.write_text("".join(left), "utf-8")
    return folder, serve(folder)


def test_all_other_pages_are_served_and_none_leads_to_them(removed):
    folder, served = removed
    assert served["steps"] == 2
    assert len(served["pages"]) == 9
    scripts = " ".join(path.read_text("utf-8") for path in (folder / "assets" / "pages").glob("*.js"))
    for name in STORES:
        # What scripts show where it leads somewhere begins hidden.
        link = rf'href=\\"\./{name}\\"(?! hidden)'
        assert not [path for path, page in served["pages"].items() if re.search(link, page)]
        assert f'offers("{name}")' in scripts


def test_their_endpoints_are_gone_and_the_others_are_not(removed):
    _, served = removed
    gone = set().union(*ENDPOINTS.values())
    assert gone & set(served["endpoints"]) == set()
    assert {"/start_audit", "/step", "/run_batch", "/calibrate"} <= set(served["endpoints"])


def test_their_commands_are_gone_and_the_others_answer(removed):
    folder, _ = removed
    told = run(folder, "-m", "app", "--help")
    assert [name for name in STORES if f"│ {name} " in told] == []
    assert "│ sessions " in told
    assert "he said" in run(folder, "-m", "app", "sessions", "--json")
