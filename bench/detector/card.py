"""The model card, written from the metadata of the pipeline and its measurements."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bench.detector.ambiguous import read_sentences
from bench.detector.crows import UNTOUCHED
from bench.detector.tables import tables
from coft_core.text.matching import BAR, BAR_APPEARANCE, BAR_WITH_RULE
from coft_core.text.pipeline import ALONE
from coft_core.types import FAMILIES

RECALL, ALARMS = 0.75, 0.09
"""What was aimed at: the share of differing words that is masked by default, and at most that of the others."""

_TEMPLATE = Path(__file__).with_name("card_template.md")


def write_card(folder: Path, measured: dict[str, Any], written: dict[str, int]) -> None:
    """Write ``MODEL_CARD.md`` into the folder of a pipeline."""
    meta = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
    facts, settings = meta["training"], meta["training"]["settings"]
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and path.suffix != ".md")
    named = [f"[{s['name']}]({s['url']})" if s["url"] else s["name"] for s in meta["sources"]]
    rows = zip(named, meta["sources"], strict=True)
    text = _TEMPLATE.read_text(encoding="utf-8").format(
        version=meta["version"],
        version_string=measured["version"].split(", ")[1],
        rows=settings["rows"],
        width=settings["width"],
        depth=settings["depth"],
        seed=settings["seed"],
        megabytes=size / 1e6,
        load_seconds=measured["load_seconds"],
        epochs=len(facts["course"]),
        minutes=facts["course"][-1]["minutes"],
        texts=facts["texts"],
        words=facts["words"],
        **written,
        temperature=facts["temperature"],
        scores=measured["scores"],
        sources="\n".join(f"| {name} | {s['author']} | {s['license']} |" for name, s in rows),
        pairs=measured["crows_pairs"]["both"]["pairs"],
        families=len(FAMILIES) + 1,
        sentences=len(read_sentences("dev")) + len(read_sentences("test")),
        bar=BAR,
        bar_appearance=BAR_APPEARANCE,
        bar_rule=BAR_WITH_RULE,
        aim=_aim(measured["crows_pairs"]["both"]["parts"][UNTOUCHED]),
        alone=ALONE,
        tables=tables(measured).split("\n\n"),
    )
    (folder / "MODEL_CARD.md").write_text(text, encoding="utf-8")


def _aim(part: dict[str, Any]) -> str:
    """What the part that was measured last says of both aims; the ends of the intervals decide whether one is shown."""
    recall, alarms = part["masked_recall"], part["others_masked"]
    met = recall["interval"][0] >= RECALL, alarms["interval"][1] <= ALARMS
    told = ["shown" if shown else "not shown" for shown in met]
    return (
        f"In the latter {recall['value']:.3f} of the differing words are masked (aim: at least {RECALL}, {told[0]}) "
        f"and {alarms['value']:.3f} of the others (aim: at most {ALARMS}, {told[1]})."
    )
