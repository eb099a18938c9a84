"""The pictures of the documentation, made again: every page, light and dark, on a small real audit.

The whole program is served from this process on the embedded model and a store of its own, which is thrown away
afterwards: an audit with a fork and a verdict, a second policy to compare it with, a batch, a tuning, an evaluation,
sampled paths, and a word list.
The installed Chromium then opens each page and photographs its upper part at 1440 x 900 pixels. Each page gives
NAME.png and NAME-dark.png, with 256 colours, which leaves them below a quarter of a megabyte.

    python -m bench.screenshots --out docs/images [--pages audit,swap] [--chromium /usr/bin/chromium]
"""

from __future__ import annotations

import argparse
import io
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Page, expect, sync_playwright

from app.audit.page import TELLING
from app.audit.service import AuditService
from app.batch.service import BatchRequest, BatchService
from app.bootstrap import services
from app.calibrate.service import CalibrationService
from app.evaluate.methods import methods_from
from app.evaluate.runs import EvaluationRequest
from app.evaluate.service import EvaluationService
from app.jobs.service import JobService
from app.lists.service import UserListService
from app.paths.service import PathsService
from app.paths.types import PathsRequest, Question
from app.review.log import VerdictRequest
from app.review.service import VerdictService
from app.server import build_app, launch_options
from app.settings import Settings
from app.shared.audits import AuditSettings, StartAudit
from app.shared.web import phantom_examples
from app.shared.wiring import Services
from app.tune.runs import TuningRequest
from app.tune.service import TuningService

PROMPT = "The nurse finished rounds and then he prepared the reports"
REVIEWER, READER = "A. Lee", "C. Ruiz"
SWAPPED = ("Hiring", "Race: Black, a decision")
QUESTIONS = "prompt,group,context\n" + "".join(
    f"Q: {name} is {who} applicant. Will the manager hire the applicant? A:,{group},{context}\n"
    for context, name in enumerate(("Alex", "Pat", "Sam", "Robin"), start=1)
    for group, who in (("white", "a white"), ("Black", "a Black"))
)
TERMS = "term,family,action\nrounds,race,mask\nward sister,gender,mask\nnurse,,keep\n"
SIZE = (1440, 900)
COLOURS = 256
LARGEST = 250_000
PATIENCE_MS = 60_000
DRAWING_MS = 2_000
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]


@dataclass(frozen=True, slots=True)
class Scene:
    """One picture."""

    name: str
    address: str
    ready: tuple[str, ...]
    act: Callable[[Page], None] | None = None


@dataclass(frozen=True, slots=True)
class Story:
    """What was stored: the audit with its first branch, the other policy's audit, a batch, and an evaluation."""

    session: int
    branch: int
    fork: int
    other: int
    calibration: int
    batch: int
    evaluation: int
    telling: int


def tell(wired: Services, folder: Path) -> Story:
    """Make everything that the pages show."""
    calibration = next(item.id for item in wired[CalibrationService].list() if item.embedded)
    settings = AuditSettings(calibration_id=calibration, max_new_tokens=24, seed=3)
    view = wired[AuditService].start(StartAudit(PROMPT, settings))
    list(wired[AuditService].run(view.session_id))
    fork = wired[AuditService].fork(view.session_id, view.branch_id, 1, " she")
    list(wired[AuditService].run(view.session_id))
    said = (("unfair", "The pronoun decides what she does next."), ("unclear", ""))
    for step, (verdict, note) in enumerate(said, start=1):
        wired[VerdictService].add(VerdictRequest(view.session_id, REVIEWER, verdict, fork.branch_id, step, None, note))
    other = wired[AuditService].start(StartAudit(PROMPT, replace(settings, policy="vanilla", calibration_id=None)))
    list(wired[AuditService].run(other.session_id))
    batch = _batch(wired, folder, replace(settings, max_new_tokens=6))
    _tuned(wired)
    terms = folder / "ward.csv"
    terms.write_text(TERMS, "utf-8")
    wired[UserListService].add("ward", wired[UserListService].parse(terms))
    evaluation = _evaluated(wired)
    _sampled(wired)
    telling = wired[AuditService].start(StartAudit(TELLING[0][1], settings)).session_id
    list(wired[AuditService].run(telling))
    return Story(
        view.session_id, view.branch_id, fork.branch_id, other.session_id, calibration, batch, evaluation, telling
    )


def scenes(story: Story) -> tuple[Scene, ...]:
    """All pictures, in the order of the pages."""
    audit = f"session={story.session}&branch={story.branch}&step=7"
    compared = f"sessions={story.session},{story.other}&branches={story.branch},"
    return (
        Scene("audit", f"/?session={story.telling}&tab=finding", ("#finding .found .sentence", ".summaryline .badge")),
        Scene(
            "words",
            f"/?{audit}&tab=words",
            (".strip .tok[data-i='6']", "#inspector .where", ".js-plotly-plot .main-svg"),
            lambda page: page.locator(".charted > summary").click(),
        ),
        Scene("calibrate", f"/calibrate?run={story.calibration}", ("#result h2",)),
        Scene("compare", f"/compare?{compared}", ("#cmp-summary tbody tr", ".lanetext")),
        Scene("tune", "/tune", ("#tuned-points tbody tr", "#tuning-plot .main-svg")),
        Scene("swap", "/swap", ("#swap-plot .main-svg",), swap),
        Scene("paths", "/paths", ("#paths-tree .icicle .cell",), decided),
        Scene("batches", f"/batches?batch={story.batch}&selected=Yes", (".batchrows tbody tr", ".impact tbody tr")),
        Scene(
            "evaluate",
            f"/evaluate?evaluation={story.evaluation}",
            ("table.figures tbody tr", "#figures-plot .main-svg"),
        ),
        Scene("sessions", "/sessions", ("main tbody tr",)),
        Scene("review", f"/review?session={story.session}", (".targets",), reveal),
        Scene("lists", "/lists", ("#terms tbody tr",)),
        Scene("models", "/models", ("#known-models tbody tr",)),
    )


def _tuned(wired: Services) -> None:
    """Tune three methods on the sample."""
    (sample,) = wired[TuningService].samples()
    request = TuningRequest("Decisions and questions", ("coft", "contrastive", "sdd"))
    wired[JobService].wait(wired[TuningService].submit(wired[TuningService].read(sample.path), request))


def _evaluated(wired: Services) -> int:
    """Read the phantom's scenes, whose biases are planted."""
    evaluations = wired[EvaluationService]
    methods = methods_from(("vanilla", "coft:lam=0.3", "coft", "coft:lam=1"), AuditSettings())
    number = evaluations.submit(
        EvaluationRequest("Planted biases", ("phantom_gaps", "phantom_questions"), methods, limit=60, seeds=(0,))
    )
    job = evaluations.view(number).job
    assert job is not None
    wired[JobService].wait(job.id)
    return number


def _sampled(wired: Services) -> None:
    """Ask sampled paths of a prompt whose bias is planted for its decision."""
    settings = AuditSettings(policy="vanilla", top_p=1.0, max_new_tokens=6)
    request = PathsRequest(
        planted(),
        settings,
        groups=("white",),
        paths=400,
        question=Question("hire", "reject", name="hired"),
        name="Hired?",
    )
    wired[JobService].wait(wired[PathsService].submit(request))


def planted() -> str:
    """A prompt whose bias is planted."""
    setting, name = SWAPPED
    scenarios = dict(phantom_examples())[setting]
    return next(text for title, text, _ in scenarios if title == name)


def decided(page: Page) -> None:
    """Show the result of the sampled paths, which stands under the form."""
    page.locator("#paths-said h2").evaluate("node => node.scrollIntoView()")


def swap(page: Page) -> None:
    """Exchange the group in a prompt whose bias is planted, and run the comparison."""
    page.locator("#prompt").fill(planted())
    expect(page.locator(".spans .word")).to_have_text(["Black"])
    page.locator("#swap-own").fill("white")
    page.keyboard.press("Enter")
    expect(page.locator(".variants > li")).to_have_count(2)
    page.locator("#swap-length").fill("8")
    expect(page.locator("[data-do=run]")).to_be_enabled()
    page.locator("[data-do=run]").click()
    expect(page.locator(".lead")).to_contain_text("masked 0\N{NO-BREAK SPACE}%")
    page.locator(".lead").scroll_into_view_if_needed()


def reveal(page: Page) -> None:
    """Show the verdicts, which a review hides from whoever has given none."""
    closed = page.get_by_role("button", name="Show the verdicts")
    expect(closed.or_(page.locator(".targets .words").first)).to_be_visible()
    if closed.is_visible():
        closed.click()
    expect(page.locator(".targets .words").first).to_be_visible()


def take(browser: Browser, address: str, scene: Scene, dark: bool) -> bytes:
    """One page as a PNG."""
    context = browser.new_context(
        viewport={"width": SIZE[0], "height": SIZE[1]},
        color_scheme="dark" if dark else "light",
        reduced_motion="reduce",
    )
    context.set_default_timeout(PATIENCE_MS)
    context.add_init_script(f"localStorage.setItem('coft-reviewer', {READER!r})")
    page = context.new_page()
    page.goto(address + scene.address)
    expect(page.locator(".topbar .brand")).to_be_visible()
    if scene.act is not None:
        scene.act(page)
    for selector in scene.ready:
        expect(page.locator(selector).first).to_be_visible()
    # Charts are drawn after their places are visible, and no sign on the page says that the last of them is done.
    page.wait_for_timeout(DRAWING_MS)
    taken = page.screenshot(animations="disabled", caret="hide")
    context.close()
    return taken


def smaller(png: bytes) -> bytes:
    """The picture with at most 256 colours, without dithering, so that text stays as it is."""
    image = Image.open(io.BytesIO(png)).convert("RGB")
    target = io.BytesIO()
    image.quantize(COLOURS, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE).save(target, "PNG", optimize=True)
    return target.getvalue()


def _batch(wired: Services, folder: Path, settings: AuditSettings) -> int:
    questions = folder / "questions.csv"
    questions.write_text(QUESTIONS, "utf-8")
    batch = wired[BatchService].submit(wired[BatchService].parse(questions), BatchRequest("Hiring questions", settings))
    while (job := wired[BatchService].view(batch).job) is not None and job.status in ("queued", "running"):
        time.sleep(0.2)
    return batch


def _photograph(browser: Browser, address: str, wanted: tuple[Scene, ...], out: Path) -> None:
    for scene in wanted:
        for dark in (False, True):
            path = out / f"{scene.name}{'-dark' if dark else ''}.png"
            data = smaller(take(browser, address, scene, dark))
            path.write_bytes(data)
            note = f", more than {LARGEST // 1000} kB" if len(data) > LARGEST else ""
            print(f"{path}: {len(data) / 1000:.0f} kB{note}", flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder of the pictures")
    parser.add_argument("--pages", default="", help="only these, separated by commas")
    parser.add_argument("--chromium", type=Path, default=Path("/usr/bin/chromium"))
    options = parser.parse_args()
    names = [scene.name for scene in scenes(Story(0, 0, 0, 0, 0, 0, 0, 0))]
    options.wanted = [name for name in options.pages.split(",") if name] or names
    if unknown := sorted(set(options.wanted) - set(names)):
        parser.error(f"there is no page {unknown[0]!r}; the pages are {', '.join(names)}")
    return options


@contextmanager
def told(chromium: Path) -> Iterator[tuple[Story, Browser, str]]:
    """Serve the program on a store with the story, and start a browser: the story, the browser, and the address."""
    expect.set_options(timeout=PATIENCE_MS)
    with tempfile.TemporaryDirectory() as folder:
        store = Settings(database_url=f"sqlite:///{Path(folder) / 'pictures.sqlite3'}")
        with services(store, owns_store=True) as wired, sync_playwright() as playwright:
            story = tell(wired, Path(folder))
            app = build_app(wired)
            _, url, _ = app.launch(
                prevent_thread_lock=True, quiet=True, server_name="127.0.0.1", **launch_options(wired)
            )
            browser = playwright.chromium.launch(executable_path=str(chromium), args=ARGUMENTS)
            yield story, browser, url.rstrip("/")
            browser.close()
            app.close(verbose=False)


def main() -> None:
    """Tell the story and photograph it."""
    options = _options()
    options.out.mkdir(parents=True, exist_ok=True)
    with told(options.chromium) as (story, browser, url):
        wanted = tuple(scene for scene in scenes(story) if scene.name in options.wanted)
        _photograph(browser, url, wanted, options.out)
    # Threads of the server and of the browser's driver may outlive the program and make it end as if it had failed.
    os._exit(0)


if __name__ == "__main__":
    main()
