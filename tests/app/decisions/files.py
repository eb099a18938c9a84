"""The same four decisions in every format that is read."""

from __future__ import annotations

import json
from pathlib import Path

PEOPLE = (("women", "a", "Emily", "hire"), ("men", "a", "Greg", "no"), ("women", "b", "Anne", "no"),
          ("men", "b", "Todd", "hire"))  # fmt: skip
CSV = "group,pair,name,decision\n" + "".join(f"{','.join(row)}\n" for row in PEOPLE)


def promptfoo() -> str:
    """Results of two models, one of which has an error."""
    rows = [
        {"vars": {"group": group, "pair": pair, "name": name}, "response": {"output": said}, "success": said == "hire",
         "score": float(said == "hire"), "prompt": {"raw": f"{name}?", "label": "short"}, "provider": {"id": "one"},
         "testIdx": place, "promptIdx": 0}
        for place, (group, pair, name, said) in enumerate(PEOPLE)
    ]  # fmt: skip
    failed = {"testCase": {"vars": {"group": "men"}}, "response": None, "error": "API error: 429", "provider": "two"}
    return json.dumps({"evalId": "e", "results": {"version": 3, "results": [*rows, failed]}, "config": {}})


def lm_eval(choices: bool) -> str:
    """Samples with written answers, or with two choices of which the likeliest counts."""
    lines = []
    for place, (group, pair, name, said) in enumerate(PEOPLE):
        doc = {"group": group, "pair": pair, "name": name}
        own = {"doc_id": place, "doc": doc, "target": "0", "acc": 1.0}
        if choices:
            own["arguments"] = {f"gen_args_{k}": {"arg_0": f"{name}?", "arg_1": f" {text}"} for k, text in
                                enumerate(("hire", "no"))}  # fmt: skip
            likely = [["-0.5", "True"], ["-2.5", "False"]]
            own["resps"] = own["filtered_resps"] = likely if said == "hire" else likely[::-1]
        else:
            own["arguments"] = {"gen_args_0": {"arg_0": f"{name}?", "arg_1": {"until": []}}}
            own |= {"resps": [[said]], "filtered_resps": [said]}
        lines.append(json.dumps(own))
    return "\n".join(lines)


def inspect_log(path: Path) -> Path:
    """A log that Inspect itself writes."""
    from inspect_ai.log import EvalConfig, EvalDataset, EvalLog, EvalSample, EvalSpec, write_eval_log
    from inspect_ai.model import ModelOutput
    from inspect_ai.scorer import Score

    samples = [
        EvalSample(
            id=place,
            epoch=1,
            input=f"{name}?",
            target="hire",
            output=ModelOutput.from_content("m", said),
            scores={"match": Score(value="C" if said == "hire" else "I")},
            metadata={"group": group, "pair": pair, "name": name},
        )
        for place, (group, pair, name, said) in enumerate(PEOPLE)
    ]
    spec = EvalSpec(created="2026-01-01T00:00:00Z", task="t", dataset=EvalDataset(), model="m", config=EvalConfig())
    write_eval_log(EvalLog(status="success", eval=spec, samples=samples), str(path))
    return path
