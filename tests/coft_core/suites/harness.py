"""Tasks of lm-evaluation-harness over records that a test writes down, so that suites compare with its own code."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import datasets
import lm_eval
from lm_eval.api.instance import Instance
from lm_eval.api.task import ConfigurableTask
from lm_eval.tasks._yaml_loader import load_yaml

TASKS = Path(lm_eval.__file__).parent / "tasks"


def harness_task(file: str, splits: Mapping[str, list[dict[str, Any]]]) -> ConfigurableTask:
    """The task of a file of the harness, with its prompts and metrics; nothing is downloaded."""
    records = {name: datasets.Dataset.from_list(rows) for name, rows in splits.items()}
    return ConfigurableTask(config={**load_yaml(TASKS / file), "custom_dataset": lambda **_: records})


def filtered(task: ConfigurableTask, texts: list[str], name: str) -> list[str]:
    """What one of the task's filters reads out of written texts."""
    [ensemble] = [ensemble for ensemble in task._filters if ensemble.name == name]
    instances = [Instance("generate_until", {}, ("", {}), place, resps=[text]) for place, text in enumerate(texts)]
    ensemble.apply(instances)
    return [instance.filtered_resps[name] for instance in instances]
