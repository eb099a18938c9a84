"""Whether the verifiers of a bundle agree: the program's ``verify``, ``verify.py``, and ``verify.html`` in Chromium.

    python -m bench.verifiers --bundles 1000 --forge-every 50

Bundles of drawn settings are written and must pass, and forgeries of every so many must be found or not, by all three
alike. What they disagree on is printed; the last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright

from app.bootstrap import services
from app.report.signing import Signer
from app.report.verify import alone
from app.settings import Settings
from app.shared.errors import ServiceError
from coft_core.assets import assets_path
from coft_core.conformal.coverage import clopper_pearson
from tests.app.report.conftest import files_of
from tests.app.report.evidence import calibrated, decided, decided_forgeries, forgeries, generated
from tests.browser import ARGUMENTS, CHROMIUM
from tests.conftest import load_tiny, verifier


def by_program(checker: Any, path: Path) -> bool:
    """Whether the program finds nothing against a bundle."""
    try:
        return bool(checker.verify(path).ok)
    except ServiceError:
        return False


def by_script(bundle: bytes) -> bool:
    """Whether verify.py finds nothing against it."""
    try:
        return not any(told for told in alone.checked(files_of(bundle)).values() if isinstance(told, list))
    except (KeyError, ValueError):
        return False


def by_page(page: Page, path: Path) -> bool:
    """Whether verify.html finds nothing against it."""
    done = page.evaluate("Number(document.body.dataset.done ?? 0)")
    page.set_input_files("#bundle", [])
    page.set_input_files("#bundle", path)
    page.locator(f'body[data-done="{done + 1}"]').wait_for()
    return page.locator("#found .fine").count() == 1


def main() -> None:
    """Generate, forge and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bundles", type=int, default=1000)
    parser.add_argument("--forge-every", type=int, default=50)
    given, seen, folder = parser.parse_args(), Counter[str](), Path(tempfile.mkdtemp(prefix="coft-verifiers-"))
    settings = Settings(database_url=f"sqlite:///{folder / 'a.sqlite3'}", pipeline="none", full_logits_kb=0)
    path, checker = folder / "evidence.zip", verifier(settings, loader=load_tiny)
    with services(settings, loader=load_tiny) as wired, sync_playwright() as playwright:
        page = playwright.chromium.launch(executable_path=str(CHROMIUM), args=ARGUMENTS).new_page()
        page.goto(assets_path("reports", "verify.html").as_uri())
        made = calibrated(wired, folder)

        def compare(kind: str, name: str, bundle: bytes, holds: bool) -> None:
            path.write_bytes(bundle)
            told = [by_program(checker, path), by_script(bundle), by_page(page, path)]
            seen[kind] += 1
            seen[f"{kind}: as expected by all"] += told == [holds] * 3
            if told != [holds] * 3:
                print(f"{name}: program, script and page say {told}, expected {holds}", flush=True)

        for number in range(given.bundles):
            bundle = generated(wired, made, number)
            compare("bundles", f"bundle {number}", bundle, True)
            made_elsewhere = decided(number, wired[Signer].sign)
            compare("decisions", f"decisions {number}", made_elsewhere, True)
            if number % given.forge_every == 0:
                for name, caught, forged in (*forgeries(bundle, folder), *decided_forgeries(made_elsewhere)):
                    compare("forgeries", f"bundle {number}, {name}", forged, not caught)
    shares = {
        kind: clopper_pearson(seen[f"{kind}: as expected by all"], seen[kind])
        for kind in ("bundles", "decisions", "forgeries")
    }
    print(json.dumps({**seen, "intervals": shares}))


if __name__ == "__main__":
    main()
