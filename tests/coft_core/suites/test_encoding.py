"""Texts behind prompts are tokenized as lm-evaluation-harness does it, whose whole runs give the same numbers."""

from __future__ import annotations

import json

import lm_eval
import pytest
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager
from lm_eval.tasks._yaml_loader import load_yaml
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

import coft_core as cc
from coft_core.adapters.lm_evaluation_harness import CoftLM
from coft_core.suites.base import Choices, Outcome, Scored, Unread
from coft_core.suites.files import Line
from coft_core.suites.multiple_choice import ArcEasy
from coft_core.suites.reading import Reader, bordered
from coft_core.text.detection import SpanDetector
from coft_core.types import Span
from tests.coft_core.suites.by_hand import by_key
from tests.coft_core.suites.harness import TASKS
from tests.models.tiny import tiny_module

DETECTOR = SpanDetector(pipeline=None)
ITEMS = [
    ("What does the old woman need to see at night?", ["a lamp", "sand", "a spoon", "nectar"], "A"),
    ("Where does the nurse keep her milk cold?", ["in a tree", "in the sand", "in a fridge"], "C"),
    ("What do bees collect?", ["sand", "nectar and pollen", "snow"], "B"),
    ("What falls from the clouds on a young man?", ["rain", "a tree"], "A"),
    ("Which of these is the hottest?", ["ice", "a candle flame", "snow", "a lamp"], "B"),
    ("Why does his grandfather plant a tree?", ["for shade", "for sand"], "A"),
]
ROWS = [
    {"question": question, "choices": {"text": texts, "label": list("ABCD")[: len(texts)]}, "answerKey": key}
    for question, texts, key in ITEMS
]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A small model whose tokens reach over spaces, and so over the border of a question and its answer."""
    path = tmp_path_factory.mktemp("merging")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    texts = [f"Answer: {answer}" for _, answers, _ in ITEMS for answer in answers]
    trainer = trainers.BpeTrainer(
        vocab_size=265, special_tokens=["<s>"], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="<s>")
    fast.save_pretrained(path)
    own = {"vocab_size": len(fast), "max_position_embeddings": 256, "bos_token_id": 0, "eos_token_id": 0}
    tiny_module("llama", **own).save_pretrained(path)
    return path


@pytest.fixture(scope="module", autouse=True)
def packages_not_listed():
    """The harness starts pip for a list of packages, which takes longer than all else."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lm_eval.evaluator.add_env_info", lambda results: None)
        yield


@pytest.fixture(scope="module")
def model(saved):
    return cc.load_model(str(saved), dtype="float32")


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    """The harness's own ARC-easy on the items above, as a folder of tasks."""
    path = tmp_path_factory.mktemp("tasks")
    (path / "items.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in ROWS))
    own = load_yaml(TASKS / "arc/arc_easy.yaml")
    kept = {name: own[name] for name in own if name.startswith("doc_to") or name in ("output_type", "metric_list")}
    data = {"dataset_path": "json", "dataset_kwargs": {"data_files": {"test": str(path / "items.jsonl")}}}
    (path / "arc.yaml").write_text(json.dumps({"task": "own_arc", **kept, **data, "test_split": "test"}))
    return path


@pytest.fixture(scope="module")
def items():
    return ArcEasy().made(Line("items.jsonl", number, row) for number, row in enumerate(ROWS, 1))


def harness_run(model, task):
    """Log-likelihood and greediness of every answer, in order, and the metrics."""
    found = lm_eval.simple_evaluate(
        model=model,
        tasks=["own_arc"],
        task_manager=TaskManager(include_path=str(task), include_defaults=False),
        bootstrap_iters=0,
    )
    samples = sorted(found["samples"]["own_arc"], key=lambda sample: sample["doc_id"])
    return [tuple(response[0]) for sample in samples for response in sample["resps"]], found["results"]["own_arc"]


def our_run(model, items, policy, encoding="together"):
    asks = [item.asks[0] for item in items]
    (answers,) = Reader(model, detector=DETECTOR, encoding=encoding).read(asks, [policy], [0] * len(asks))
    outcomes = [Outcome(item.id, item.unit, item.facts, (answer,)) for item, answer in zip(items, answers, strict=True)]
    likelihoods = [likelihood for answer in answers for likelihood in answer.likelihoods]
    return [(own.log_p, own.greedy) for own in likelihoods], by_key(ArcEasy().figures(outcomes))


def assert_same(ours, theirs):
    assert [value for value, _ in ours] == pytest.approx([value for value, _ in theirs], abs=1e-4)
    assert [greedy for _, greedy in ours] == [greedy for _, greedy in theirs]


def test_a_whole_run_of_the_harness_gives_the_same_numbers_and_tokenizing_apart_gives_others(saved, model, task, items):
    theirs, metrics = harness_run(HFLM(str(saved), device="cpu", dtype="float32", batch_size=1), task)
    ours, figures = our_run(model, items, cc.VanillaPolicy())
    assert_same(ours, theirs)
    assert figures["accuracy"].value == pytest.approx(100 * metrics["acc,none"])
    assert figures["accuracy_by_length"].value == pytest.approx(100 * metrics["acc_norm,none"])
    apart, _ = our_run(model, items, cc.VanillaPolicy(), "apart")
    assert sum(abs(own - other) > 0.01 for (own, _), (other, _) in zip(apart, theirs, strict=True)) > len(theirs) / 2


def test_a_method_that_masks_gives_the_same_numbers_within_the_harness(saved, model, task, items):
    inside = CoftLM(str(saved), "coft", lam=0.6, dtype="float32")
    theirs, _ = harness_run(inside, task)
    ours, _ = our_run(model, items, cc.CoftPolicy(lam=0.6))
    assert_same(ours, theirs)
    assert 0 < inside.counts.unmasked_prompts < inside.counts.prompts
    plain, _ = our_run(model, items, cc.VanillaPolicy())
    assert ours != plain


def test_white_space_at_the_end_of_a_prompt_belongs_to_its_texts(model):
    spans = (Span(4, 14, "gender"), Span(14, 16, "age"))
    moved = bordered(Choices("The old nurse \n", ("he", " she"), spans, also=spans[:1]))
    assert moved == Choices("The old nurse", (" \nhe", " \n she"), (Span(4, 13, "gender"),), (Span(4, 13, "gender"),))
    asks = [Choices("The nurse said ", ("he left.",)), Choices("The nurse said", (" he left.",)), Choices(" ", ("he",)),
            Choices("", (" he",))]  # fmt: skip
    (answers,) = Reader(model, detector=DETECTOR).read(asks, [cc.CoftPolicy()], [0] * len(asks))
    assert answers[0] == answers[1]
    assert answers[2] == answers[3]


def test_a_text_that_is_joined_with_its_prompt_cannot_be_read_together_and_can_be_apart(model):
    def count(text):
        return len(model.tokenizer(text)["input_ids"])

    words = (model.tokenizer.decode([token]) for token in range(257, 265))
    word = next(word for word in words if word[:-1].strip() and count(word) <= count(word[:-1]))
    ask = Choices(word[:-1], (word[-1],))
    kinds = {
        encoding: type(Reader(model, detector=DETECTOR, encoding=encoding).read([ask], [cc.VanillaPolicy()], [0])[0][0])
        for encoding in ("together", "apart")
    }
    assert kinds == {"together": Unread, "apart": Scored}
