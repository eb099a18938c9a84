"""Every method declares how it differs from what its authors published, and all lists say it in the same words."""

from pathlib import Path

import pytest

from app.audit.operations import print_policies
from app.shared.policies import KNOWN_POLICIES, policies_json
from coft_core.policies.registry import METHODS

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "method.md"


@pytest.mark.parametrize("own", METHODS, ids=lambda own: own.name)
def test_a_method_says_how_it_differs_from_its_authors_in_the_documentation_too(own):
    assert own.differs.endswith(".")
    assert f"| `{own.name}` | {own.differs} |" in DOCUMENT.read_text(encoding="utf-8").splitlines()


def test_the_command_and_the_page_list_it_with_every_method(capsys):
    print_policies(KNOWN_POLICIES)
    printed = capsys.readouterr().out
    shown = {item["key"]: item["differs"] for item in policies_json()}
    for info in KNOWN_POLICIES:
        assert info.differs in printed
        assert shown[info.key] == info.differs
