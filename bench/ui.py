"""The audit page: its cost while a chain is written, long transcripts and prompts, opening, and the read-again sliders.

The whole program is served from this process on the embedded model, whose end of text is taken away so that its chains
are long enough, and Chromium runs a chain in it. A repeat writes one chain without a page and one through the page. The
page's own cost of a step is what the page adds to generation: the processor time of the serving process beyond that of
generation alone (handlers, queue, messages), and the processor time of the browser's main thread (scripts, style,
layout, painting). Both are processor times, so that other load on the machine hardly changes them; elapsed times are
reported beside them. Then a stored chain is opened whose steps are repeated to 1,024, further ones are appended, and
tokens are selected far from each other.

What a reviewer waits for is measured in elapsed time, from the browser's own clock: a key in a prompt of 1,500 words
with 400 spans, from the event to the frame that follows it, typed in bursts with pauses in which detection answers; a
stored chain, from the navigation to the frame in which its tokens and the selected token's candidates stand; and a
slider of the read-again panel, from its event to the frame with the new reading. Intervals are 95 % bootstrap intervals
of the median. Each part prints a line of JSON when it is done, and the last line holds them all.

    python -m bench.ui [--only streaming,transcript,typing,opening,sliders] [--steps 256] [--repeats 7] [--long 1024]
                       [--words 1500] [--spans 400] [--keys 120] [--chromium /usr/bin/chromium] [--threads 2]
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from playwright.sync_api import Browser, CDPSession, Page, sync_playwright

from app.audit.service import AuditService
from app.bootstrap import services
from app.calibrate.service import CalibrationService
from app.server import build_app, launch_options
from app.settings import Settings
from app.shared.audits import AuditSettings, AuditView, StartAudit
from app.shared.wiring import Services
from coft_core import LanguageModel, load_model
from coft_core.types import Span
from db.database import Database
from db.sessions import SessionsRepository

PROMPT = "The nurse finished rounds and then he prepared the reports"
SPANS = (Span(35, 37, "gender"),)
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
PATIENCE_MS = 300_000
METRICS = ("ScriptDuration", "LayoutDuration", "RecalcStyleDuration", "TaskDuration")
TARGET_MS = 50.0
RESAMPLES = 2000

APPEND = """async ([times]) => {
  const session = coft.session, found = [];
  const painted = () => new Promise((go) => requestAnimationFrame(() => setTimeout(go, 0)));
  for (let at = 0; at < times; at += 1) {
    const state = session.state(), like = state.cards[at];
    const card = { ...like, i: state.cards.length };
    const begin = performance.now();
    session.extend({ kind: "steps", from: card.i, steps: [card], finished: null, chain: null, done: false });
    document.querySelector(".strip").getBoundingClientRect();
    found.push(performance.now() - begin);
    await painted();
  }
  return found;
}"""
SELECT = """async ([places]) => {
  const found = [];
  const painted = () => new Promise((go) => requestAnimationFrame(() => setTimeout(go, 0)));
  for (const place of places) {
    const begin = performance.now();
    coft.session.select(place, true);
    await painted();
    found.push(performance.now() - begin);
    await new Promise((go) => setTimeout(go, 50));
  }
  return found;
}"""


CHARTS = """() => import(document.querySelector("link[rel=modulepreload][href$='base/charts.js']").href)
  .then(({ plotly }) => plotly())"""
STOOD = "window.coft && coft.session && coft.session.state().busy === null && coft.session.state().values !== null"
PARTS = ("streaming", "transcript", "typing", "opening", "sliders")
TERMS = ("she", "he", "woman", "man", "mother", "father", "daughter", "son")
FILLERS = ("opened", "the", "letter", "and", "then", "looked", "at", "a", "small", "table", "near", "window", "before")
BURST = 12
PAUSE_MS = 900
KEY_PAUSE_MS = 60

"""What a page needs to take the time of each key: from the event to the end of the frame that follows it."""
WATCH_KEYS = """() => {
  window.benchKeys = [];
  document.addEventListener("keydown", ({ timeStamp }) => requestAnimationFrame(() => setTimeout(() => {
    window.benchKeys.push(performance.now() - timeStamp);
  }, 0)), true);
}"""
"""When a stored chain stands: seconds are the browser's, from the navigation."""
STANDS = """(steps) => {
  window.benchStood = null;
  const look = () => {
    const there = document.querySelectorAll(".strip .tok[data-i]").length === steps
      && document.querySelector(".cand tbody tr") !== null;
    if (!there) { requestAnimationFrame(look); return; }
    requestAnimationFrame(() => setTimeout(() => { window.benchStood = performance.now(); }, 0));
  };
  if (document.body) look(); else document.addEventListener("DOMContentLoaded", look);
}"""
SLIDE = """async ([name, value]) => {
  const field = document.querySelector(`#reread-${name}`), told = document.querySelector("#rereading .told-now .token");
  told.textContent = "";
  const begin = performance.now();
  const answered = new Promise((go) => {
    new MutationObserver((_, watcher) => { watcher.disconnect(); go(); }).observe(
      told, { childList: true, characterData: true, subtree: true });
  });
  field.value = value;
  field.dispatchEvent(new Event("input", { bubbles: true }));
  await answered;
  await new Promise((go) => requestAnimationFrame(() => setTimeout(go, 0)));
  return performance.now() - begin;
}"""


@dataclass(frozen=True, slots=True)
class Cost:
    """What one chain took, a step: processor milliseconds, elapsed milliseconds, and what came over the wire."""

    server_ms: float
    elapsed_ms: float
    browser: dict[str, float]
    kilobytes: float


def summary(values: list[float]) -> dict[str, float | int | list[float]]:
    """Count, median and its 95 % bootstrap interval."""
    drawn = np.random.default_rng(0).choice(values, (RESAMPLES, len(values)))  # (R, n)
    low, high = np.percentile(np.median(drawn, axis=1), [2.5, 97.5])
    return {
        "n": len(values),
        "median": round(statistics.median(values), 3),
        "interval_95": [round(float(low), 3), round(float(high), 3)],
    }


def begin(wired: Services, settings: AuditSettings) -> AuditView:
    """A session without a step."""
    return wired[AuditService].start(StartAudit(PROMPT, settings, SPANS, "bench"))


def endless(name: str, **options: Any) -> LanguageModel:
    """A model that goes on until a chain has its length."""
    return dataclasses.replace(load_model(name, **options), end_token_ids=frozenset())


def settings_for(wired: Services, steps: int) -> AuditSettings:
    """Settings of a chain of so many steps, with the embedded calibration."""
    embedded = next((item.id for item in wired[CalibrationService].list() if item.embedded), None)
    return AuditSettings(max_new_tokens=steps, calibration_id=embedded)


def alone(wired: Services, settings: AuditSettings) -> tuple[float, float]:
    """Processor and elapsed milliseconds a step of generation without a page."""
    session = begin(wired, settings).session_id
    processor, elapsed = time.process_time(), time.perf_counter()
    count = sum(1 for _ in wired[AuditService].run(session))
    return (
        1000 * (time.process_time() - processor) / count,
        1000 * (time.perf_counter() - elapsed) / count,
    )


def metrics(session: CDPSession) -> dict[str, float]:
    """The browser's own counters: seconds of the main thread, nodes, bytes of the script heap."""
    return {item["name"]: item["value"] for item in session.send("Performance.getMetrics")["metrics"]}


@contextmanager
def opened(browser: Browser, url: str, waiting: str = STOOD) -> Iterator[tuple[Page, CDPSession]]:
    """A session's page, once its transcript can be used, with the browser's counters on."""
    context = browser.new_context(viewport={"width": 1440, "height": 1000})
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    counters = context.new_cdp_session(page)
    counters.send("Performance.enable", {"timeDomain": "threadTicks"})
    page.goto(url)
    page.wait_for_function(waiting)
    page.wait_for_timeout(1500)
    yield page, counters
    context.close()


def through_the_page(wired: Services, settings: AuditSettings, browser: Browser, url: str) -> Cost:
    """What a chain takes that is run from the page."""
    session, received = begin(wired, settings).session_id, [0]
    with opened(browser, f"{url}/?session={session}") as (page, counters):
        # The charts' library comes once, with the first picture, and is no step's cost.
        page.evaluate(CHARTS)
        counters.send("Network.enable")
        counters.on("Network.dataReceived", lambda event: received.append(int(event["dataLength"])))
        before, processor, elapsed = metrics(counters), time.process_time(), time.perf_counter()
        page.locator("[data-do=go]").click()
        page.wait_for_function(f"coft.session.state().cards.length === {settings.max_new_tokens}", polling=50)
        page.wait_for_function("coft.session.state().busy === null", polling=50)
        took = time.perf_counter() - elapsed
        page.wait_for_timeout(1000)
        spent, after = time.process_time() - processor, metrics(counters)
    steps = settings.max_new_tokens
    return Cost(
        server_ms=1000 * spent / steps,
        elapsed_ms=1000 * took / steps,
        browser={name: 1000 * (after[name] - before[name]) / steps for name in METRICS},
        kilobytes=sum(received) / 1000 / steps,
    )


def streaming(wired: Services, browser: Browser, url: str, options: argparse.Namespace) -> dict[str, Any]:
    """The page's own cost of a step, over the repeats."""
    settings = settings_for(wired, options.steps)
    through_the_page(wired, settings, browser, url)
    pairs = []
    for number in range(options.repeats):
        bare, cost = alone(wired, settings), through_the_page(wired, settings, browser, url)
        own = cost.server_ms - bare[0] + cost.browser["TaskDuration"]
        pairs.append((bare, cost))
        print(f"repeat {number + 1}: own {own:.2f} ms a step, generation {bare[0]:.2f} ms", flush=True)
    own_ms = [cost.server_ms - bare[0] + cost.browser["TaskDuration"] for bare, cost in pairs]
    return {
        "steps": options.steps,
        "own_cost_ms_per_step": summary(own_ms),
        "server_beyond_generation_ms_per_step": summary([cost.server_ms - bare[0] for bare, cost in pairs]),
        "browser_ms_per_step": {name: summary([cost.browser[name] for _, cost in pairs]) for name in METRICS},
        "received_kilobytes_per_step": summary([cost.kilobytes for _, cost in pairs]),
        "generation_ms_per_step": summary([bare[0] for bare, _ in pairs]),
        "elapsed_ms_per_step": summary([cost.elapsed_ms for _, cost in pairs]),
        "elapsed_generation_alone_ms_per_step": summary([bare[1] for bare, _ in pairs]),
        "target_ms": TARGET_MS,
        "within_target": bool(statistics.median(own_ms) < TARGET_MS),
    }


def prolonged(wired: Services, settings: AuditSettings, store: SessionsRepository, length: int) -> int:
    """A stored session whose chain repeats itself to ``length`` steps."""
    session = begin(wired, replace(settings, max_new_tokens=length))
    steps = list(wired[AuditService].run(begin(wired, settings).session_id))
    for index in range(length):
        store.append_step(session.branch_id, replace(steps[index % len(steps)], index=index))
    return session.session_id


def transcript(
    wired: Services, store: SessionsRepository, browser: Browser, url: str, options: argparse.Namespace
) -> dict[str, Any]:
    """Opening, appending and selecting in a long transcript."""
    settings = settings_for(wired, min(options.steps, 64))
    session = prolonged(wired, settings, store, options.long)
    with opened(browser, url) as (_, counters):
        counters.send("HeapProfiler.collectGarbage")
        empty = metrics(counters)
    with opened(browser, f"{url}/?session={session}") as (page, counters):
        counters.send("HeapProfiler.collectGarbage")
        full = metrics(counters)
        places = [options.long * at // 11 for at in (0, 5, 10, 1, 9, 2, 8, 3, 7, 4, 6)]
        selected = page.evaluate(SELECT, [places])
        after_selecting = metrics(counters)
        appended = page.evaluate(APPEND, [24])
        after_appending = metrics(counters)
    return {
        "tokens": options.long,
        "append_and_layout_elapsed_ms": summary(appended),
        "append_main_thread_ms": _mean_task(after_selecting, after_appending, len(appended)),
        "select_to_frame_elapsed_ms": summary(selected),
        "select_main_thread_ms": _mean_task(full, after_selecting, len(selected)),
        "nodes": int(full["Nodes"] - empty["Nodes"]),
        "script_heap_mb": round((full["JSHeapUsedSize"] - empty["JSHeapUsedSize"]) / 1e6, 2),
    }


def long_text(words: int, spans: int) -> str:
    """A prompt of so many words, of which so many are terms that the detector finds."""
    drawn = [FILLERS[at % len(FILLERS)] for at in range(words)]
    for number in range(spans):
        drawn[number * words // spans] = TERMS[number % len(TERMS)]
    return " ".join(drawn)


def typing(browser: Browser, url: str, options: argparse.Namespace) -> dict[str, Any]:
    """Each key in a long prompt, from its event to the frame that follows it."""
    text = long_text(options.words, options.spans)
    with opened(browser, url) as (page, counters):
        page.locator("#prompt").fill(text)
        page.wait_for_function("(text) => coft.editor.kept().settled", arg=text)
        page.wait_for_timeout(2 * PAUSE_MS)
        found = page.evaluate("coft.editor.kept().spans.length")
        page.evaluate("document.querySelector('#prompt').setSelectionRange(4000, 4000)")
        page.locator("#prompt").focus()
        page.evaluate(WATCH_KEYS)
        before = metrics(counters)
        for number in range(options.keys):
            page.keyboard.press(" " if number % 6 == 5 else "abcde"[number % 6])
            page.wait_for_timeout(PAUSE_MS if number % BURST == BURST - 1 else KEY_PAUSE_MS)
        page.wait_for_function("(count) => window.benchKeys.length === count", arg=options.keys)
        took, after = page.evaluate("window.benchKeys"), metrics(counters)
    return {
        "words": options.words,
        "spans": found,
        "key_to_frame_ms": summary(took),
        "p95_ms": round(float(np.percentile(took, 95)), 1),
        "longest_ms": round(max(took), 1),
        "main_thread_ms_per_key": {name: round(1000 * (after[name] - before[name]) / len(took), 2) for name in METRICS},
    }


def opening(
    wired: Services, store: SessionsRepository, browser: Browser, url: str, options: argparse.Namespace
) -> dict[str, Any]:
    """Opening a stored chain: in a browser that has never seen the program, and in one that has its files."""
    session = prolonged(wired, settings_for(wired, min(options.steps, 64)), store, options.steps)
    address = f"{url}/?session={session}"
    first, again, within = [], [], []
    for _ in range(options.repeats):
        context = browser.new_context(viewport={"width": 1440, "height": 1000})
        context.set_default_timeout(PATIENCE_MS)
        context.add_init_script(f"({STANDS})({options.steps})")
        page = context.new_page()
        for found in (first, again):
            page.goto(address, wait_until="commit")
            page.wait_for_function("window.benchStood")
            found.append(page.evaluate("window.benchStood"))
        page.wait_for_timeout(3000)
        begun = page.evaluate("performance.now()")
        page.evaluate(
            "([session, steps]) => { document.querySelector('.strip .tok').dataset.old = ''; "
            "coft.session.open({ session }); }",
            [session, options.steps],
        )
        page.wait_for_function("!document.querySelector('.strip .tok[data-old]')")
        page.evaluate(f"({STANDS})({options.steps})")
        page.wait_for_function("window.benchStood")
        within.append(page.evaluate("window.benchStood") - begun)
        context.close()
    return {
        "steps": options.steps,
        "first_visit_ms": summary(first),
        "later_visit_ms": summary(again),
        "within_the_page_ms": summary(within),
    }


def sliders(
    wired: Services, store: SessionsRepository, browser: Browser, url: str, options: argparse.Namespace
) -> dict[str, Any]:
    """The read-again sliders over a stored chain."""
    settings = settings_for(wired, options.steps)
    session = begin(wired, settings).session_id
    for _ in wired[AuditService].run(session):
        pass
    took: dict[str, list[float]] = {"lam": [], "alpha": []}
    with opened(browser, f"{url}/?session={session}") as (page, _):
        page.locator("#rereading summary").click()
        page.wait_for_function("document.querySelector('#rereading .told-now .token')?.textContent")
        page.wait_for_timeout(1500)
        for number in range(options.repeats):
            for name, low in (("lam", 0.2), ("alpha", 0.12)):
                took[name].append(page.evaluate(SLIDE, [name, f"{low + 0.02 * number:.2f}"]))
                page.wait_for_timeout(700)
    return {"steps": options.steps, **{f"{name}_ms": summary(values) for name, values in took.items()}}


def _mean_task(before: dict[str, float], after: dict[str, float], times: int) -> float:
    """Processor milliseconds of the main thread for one of several equal actions, all that they set off included."""
    return round(1000 * (after["TaskDuration"] - before["TaskDuration"]) / times, 2)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--long", type=int, default=1024, help="tokens of the long transcript")
    parser.add_argument("--chromium", type=Path, default=Path("/usr/bin/chromium"))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--words", type=int, default=1500, help="words of the long prompt")
    parser.add_argument("--spans", type=int, default=400, help="terms among them")
    parser.add_argument("--keys", type=int, default=120, help="keys that are typed in it")
    parser.add_argument("--only", default=",".join(PARTS), help="parts to measure, with commas between them")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(database_url=f"sqlite:///{Path(folder) / 'bench.sqlite3'}")
        with services(settings, owns_store=True, loader=endless) as wired, Database(settings.database_url) as database:
            app = build_app(wired)
            _, url, _ = app.launch(
                prevent_thread_lock=True, quiet=True, server_name="127.0.0.1", **launch_options(wired)
            )
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path=str(options.chromium), args=ARGUMENTS)
                store, address = SessionsRepository(database), url.rstrip("/")
                parts: dict[str, Callable[[], dict[str, Any]]] = {
                    "streaming": lambda: streaming(wired, browser, address, options),
                    "transcript": lambda: transcript(wired, store, browser, address, options),
                    "typing": lambda: typing(browser, address, options),
                    "opening": lambda: opening(wired, store, browser, address, options),
                    "sliders": lambda: sliders(wired, store, browser, address, options),
                }
                found: dict[str, Any] = {"benchmark": "ui", "repeats": options.repeats, "threads": options.threads}
                for name in options.only.split(","):
                    found[name] = parts[name]()
                    print(json.dumps({"part": name, **found[name]}), flush=True)
                browser.close()
            app.close(verbose=False)
    print(json.dumps(found), flush=True)
    # Threads of the server and of the browser's driver may outlive the program and make it end as if it had failed.
    os._exit(0)


if __name__ == "__main__":
    main()
