"""The verifiers that come with a bundle: they say what the program's own says, without it."""

import ast
import json
import math
import random
import sys
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from app.report.bundle import MANIFEST, pack
from app.report.signing import Signer
from app.report.verify import alone
from app.shared.errors import ServiceError
from app.shared.policies import KNOWN_POLICIES
from coft_core.assets import assets_path
from coft_core.conformal import informative
from coft_core.conformal.bins import PositionBins, stepwise_bins
from coft_core.conformal.quantile import exact_alpha
from coft_core.conformal.rule import Rule
from coft_core.controls.statistics import step_down
from tests.app.report.conftest import files_of
from tests.app.report.evidence import (
    calibrated,
    decided,
    decided_forgeries,
    forgeries,
    generated,
    manifest_again,
    signed_by_another,
)
from tests.conftest import load_tiny, verifier

BUNDLES, FORGED_EVERY = 12, 12


@pytest.fixture(scope="module", autouse=True)
def _random_models_say_something():
    """Nothing is changed for these tests: the verifiers have the numbers of the program as it is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(informative, "LARGE", alone.LARGE)
        patch.setattr(informative, "MANY", alone.MANY)
        yield


@pytest.fixture(scope="module")
def bundles(audited, tmp_path_factory):
    folder = tmp_path_factory.mktemp("generated")
    made = calibrated(audited.wired, folder)
    return [generated(audited.wired, made, number) for number in range(BUNDLES)]


@pytest.fixture(scope="module")
def judged(audited, bundles, tmp_path_factory):
    """Bundles and forgeries of them, each with what the program says of it and whether it can be caught."""
    folder = tmp_path_factory.mktemp("judged")
    checker, listed = verifier(audited.settings, loader=load_tiny), []
    for number, bundle in enumerate(bundles):
        listed.append((f"bundle {number}", False, bundle))
        listed += forgeries(bundle, folder) if number % FORGED_EVERY == 0 else ()
    for number in range(BUNDLES):
        listed.append((f"decisions {number}", False, decided(number, audited.wired[Signer].sign)))
        listed += decided_forgeries(listed[-1][-1]) if number % FORGED_EVERY == 0 else ()

    def fails(bundle):
        path = folder / "evidence.zip"
        path.write_bytes(bundle)
        try:
            return not checker.verify(path).ok
        except ServiceError:
            return True

    return [(name, caught, fails(bundle), bundle) for name, caught, bundle in listed]


def problems(bundle, key=None):
    found = alone.checked(files_of(bundle), key)
    return {name: told for name, told in found.items() if isinstance(told, list) and told}


def test_the_script_needs_nothing_but_python_and_can_be_read_in_one_sitting():
    source = Path(alone.__file__).read_text("utf-8")
    assert len(source.splitlines()) <= 400
    imported = {name.name.partition(".")[0] for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Import)
                for name in node.names}  # fmt: skip
    imported |= {
        node.module.partition(".")[0] for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom)
    }
    assert imported <= sys.stdlib_module_names


def test_a_bundle_carries_both_verifiers_as_they_are_here(bundles):
    files = files_of(bundles[0])
    assert files["verify.py"] == Path(alone.__file__).read_bytes()
    assert files["verify.html"] == assets_path("reports", "verify.html").read_bytes()


def test_the_script_and_the_program_agree_on_bundles_and_forgeries(judged):
    assert len({name for name, *_ in judged}) > 30
    for name, caught, fails, bundle in judged:
        found = problems(bundle)
        assert (bool(found), fails) == (caught, caught), (name, found)


@pytest.mark.ui
def test_the_page_opens_from_the_disk_and_agrees_on_bundles_and_forgeries(judged, browser, tmp_path):
    page, path = browser.new_page(), tmp_path / "evidence.zip"
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(assets_path("reports", "verify.html").as_uri())
    for number, (name, caught, _, bundle) in enumerate(judged, 1):
        path.write_bytes(bundle)
        page.set_input_files("#bundle", [])
        page.set_input_files("#bundle", path)
        page.locator(f'body[data-done="{number}"]').wait_for()
        assert (page.locator("#found .fine").count() == 0) == caught, (name, page.inner_text("#found"))
    for name, data in files_of(judged[0][-1]).items():
        (tmp_path / "unpacked").mkdir(exist_ok=True)
        (tmp_path / "unpacked" / name).write_bytes(data)
    page.fill("#key", "0" * 64)
    page.set_input_files("#folder", tmp_path / "unpacked")
    page.locator(f'body[data-done="{len(judged) + 1}"]').wait_for()
    assert "not signed by the key" in page.inner_text("#found")
    path.write_bytes(pack(manifest_again(files_of(judged[0][-1]))))
    page.fill("#key", "")
    page.set_input_files("#bundle", [])
    page.set_input_files("#bundle", path)
    page.locator(f'body[data-done="{len(judged) + 2}"]').wait_for()
    assert page.locator("#found .loud").all_inner_texts() == ["NOT SIGNED: anybody can have made it."]
    assert all(url.startswith(("file:", "blob:")) for url in asked)
    page.close()


def test_the_script_ends_with_a_code_of_its_own_where_nobody_signed(audited, bundles, tmp_path, capsys):
    path, key = tmp_path / "evidence.zip", tmp_path / "key.pem"
    key.write_text(audited.wired[Signer].public_key)
    files = files_of(bundles[0])
    unsigned, another = pack(manifest_again(files)), pack(signed_by_another(files))
    damaged = {**files, "report.json": files["report.json"] + b" "}
    runs = [
        (bundles[0], [], 0), (bundles[0], ["--key", str(key)], 0), (unsigned, [], 3), (unsigned, ["--unsigned"], 0),
        (unsigned, ["--key", str(key)], 1), (another, [], 0), (another, ["--key", str(key)], 1), (pack(damaged), [], 1),
        (b"nonsense", [], 2),
    ]  # fmt: skip
    for bundle, options, code in runs:
        path.write_bytes(bundle)
        assert alone.main([str(path), *options]) == code, options
        said = capsys.readouterr().out
        assert ("NOT SIGNED" in said) == (bundle == unsigned)
    stated = json.loads(files[MANIFEST])
    stated["signatures"][0]["signature"] = "A" * 86 + "=="
    assert set(problems(pack({**files, MANIFEST: json.dumps(stated).encode()}))) == {"Signature"}


@pytest.mark.ui
def test_signatures_hold_by_hand_exactly_where_they_hold_by_the_library(browser):
    draw, cases = random.Random(5), []
    for length in (0, 1, 70, 300):
        key = Ed25519PrivateKey.from_private_bytes(draw.randbytes(32))
        public, text = key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw), draw.randbytes(length)
        signature = key.sign(text)
        beyond = signature[:32] + (int.from_bytes(signature[32:], "little") + alone.ORDER).to_bytes(32, "little")
        cases += [
            (public, text, signature, True),
            (public, text + b"x", signature, False),
            (public, text, beyond, False),
        ]
        cases.append((public, text, bytes([signature[0] ^ 1]) + signature[1:], False))
    page = browser.new_page()
    page.goto(assets_path("reports", "verify.html").as_uri())
    source = assets_path("reports", "verify.html").read_text("utf-8")
    body = source.split('<script type="module">')[1].split("</script>")[0].replace("export ", "")
    for public, text, signature, expected in cases:
        try:
            held = alone.holds_for(public, text, signature)
        except ValueError:
            held = False
        assert held is expected
    listed = [[*map(list, case[:3])] for case in cases]
    told = page.evaluate(
        f"async (cases) => {{ {body}\n const made = []; for (const parts of cases) made.push(await holdsByHand("
        "...parts.map((part) => Uint8Array.from(part)))); return made }", listed
    )  # fmt: skip
    assert told == [expected for *_, expected in cases]
    page.close()


@pytest.mark.parametrize("seed", range(12))
def test_thresholds_and_p_values_are_those_of_the_core(seed):
    draw = random.Random(seed)
    estimator, alpha = draw.choice(("hierarchical", "pooled")), draw.choice((0.1, 0.29, 0.05, 0.5))
    spacing, width, most = draw.choice(("even", "widening")), draw.randint(1, 5), draw.randint(1, 20)
    # As float32 has them, with ties and -inf.
    supports = (-math.inf, -0.5, -1.25, *(-number / 32 for number in range(800)))
    size = draw.choice((0, 40, 400))
    rows = [(draw.choice(supports), draw.randrange(24), draw.randrange(30)) for _ in range(size)]
    part = {"fingerprint": {"estimator": estimator}, "bin_width": width, "max_position": most, "bin_spacing": spacing}
    columns = list(zip(*rows, strict=True)) or [[], [], []]
    values, steps, contexts = (
        np.array(c, dtype=t) for c, t in zip(columns, (np.float32, np.int32, np.int32), strict=True)
    )
    rule, positions = Rule(estimator), PositionBins(width, most, spacing)
    expected = stepwise_bins(values, steps, contexts, exact_alpha(alpha), rule, positions)
    made = alone.bins_of(part, rows, {"alpha": alpha})
    names = ("first_step", "last_step", "log_tau", "state", "contexts")
    assert [[row[name] for name in names] for row in made] == [
        [getattr(one, name) for name in names] for one in expected
    ]
    effects = [[draw.randint(0, 6) / 8 for _ in range(9)] for _ in range(draw.randint(2, 7))]
    family = {"family": "age", "marked": {"effects": effects[0]}, "neutral": [], "p_values": step_down(effects),
              "others": [{"effects": row} for row in effects[1:]]}  # fmt: skip
    report = {"controls": [{"branch": "0", "controls": {"families": [family]}}]}
    assert all(holds for holds, _ in alone.check_controls(report))


def test_what_the_script_knows_of_methods_and_of_weak_thresholds_is_what_the_program_knows():
    known = {info.key: info for info in KNOWN_POLICIES}
    assert set(alone.FACTUAL) == {key for key, info in known.items() if info.certified_in == "factual"}
    assert set(alone.REFUSING) == {key for key, info in known.items() if info.kind == "constraint"}
    assert (math.log(informative.WEAKEST_TAU), informative.NEARLY_ALL) == (alone.WEAKEST, alone.NEARLY_ALL)
    # Tests may widen the others for models of few tokens.
    source = Path(informative.__file__).read_text("utf-8")
    assert f"LARGE = {alone.LARGE}" in source
    assert f"MANY, NEARLY_ALL = {alone.MANY}, {alone.NEARLY_ALL}" in source
    page = assets_path("reports", "verify.html").read_text("utf-8")
    for name in ("FACTUAL", "REFUSING", "OTHER_FORM", "WORST_FIRST"):
        assert all(f'"{one}"' in page for one in getattr(alone, name))
    assert f"LARGE = {alone.LARGE}, MANY = {alone.MANY}, NEARLY_ALL = {alone.NEARLY_ALL}" in page
