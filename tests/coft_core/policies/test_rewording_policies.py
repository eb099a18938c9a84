"""Counterfactual substitution and neutral rewriting against slow computations, and what they say of a prompt."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import pytest
import torch

import coft_core as cc
from coft_core.decode.loop import Rollout
from coft_core.decode.plan import Plan, plan
from coft_core.errors import InvalidInputError
from coft_core.model.fake import byte_tokenizer, scripted_model, tiny_model
from coft_core.model.group import score_branches
from coft_core.model.language_model import LanguageModel
from coft_core.policies.base import Past
from coft_core.policies.cf_substitution import NOTHING_SUBSTITUTED, CfSubstitutionPolicy
from coft_core.policies.neutral_rewrite import REWRITER, NeutralRewritePolicy
from coft_core.policies.registry import method
from coft_core.policies.vanilla import VanillaPolicy
from coft_core.text.masking import mask_prompt

TEXT = "The old Muslim said that she was late."
SPANS = [cc.Span(4, 7, "age"), cc.Span(8, 14, "religion"), cc.Span(25, 28, "gender")]


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    return tiny_model(seed=1)


def distribution(model: LanguageModel, text: str, temperature: float = 1.0) -> list[float]:
    """What follows a text, from one plain forward."""
    ids = model.tokenizer.encode(text, add_special_tokens=False)
    with torch.inference_mode():
        logits = model.module(torch.tensor([ids])).logits[0, -1].double()  # (V,)
    found: list[float] = (logits / temperature).softmax(-1).tolist()
    return found


def drawn_from(planned: Plan) -> list[float]:
    """What the policy draws the first token from."""
    branches = planned.policy.branches(planned.prompt)
    logits = score_branches(planned.all_models, branches, [5])[:1]  # (1, B, V)
    names = tuple(branch.name for branch in branches)
    views = planned.policy.views(logits, 0, names, (Past(planned.model, planned.prompt),))
    found: list[float] = views.log_p_fused[0].exp().tolist()
    return found


@pytest.mark.parametrize(("weight", "temperature"), [(1.0, 1.0), (0.5, 0.7), (3.0, 1.0)])
@pytest.mark.parametrize("mean", ["probabilities", "logits"])
def test_substituted_readings_are_averaged_token_by_token(
    model: LanguageModel, mean: str, weight: float, temperature: float
):
    policy = CfSubstitutionPolicy(most=3, mean=mean, weight=weight, temperature=temperature)
    texts = [TEXT, TEXT.replace("she", "he"), TEXT.replace("Muslim", "Jew"), TEXT.replace("old", "young")]
    rows = [distribution(model, text, temperature) for text in texts]
    weights = [1.0, weight, weight, weight]
    expected = []
    for token in range(len(rows[0])):
        column = [row[token] for row in rows]
        if mean == "probabilities":
            expected.append(sum(w * p for w, p in zip(weights, column, strict=True)) / sum(weights))
        else:
            expected.append(math.prod(p ** (w / sum(weights)) for w, p in zip(weights, column, strict=True)))
    total = sum(expected)
    found = drawn_from(plan(model, TEXT, policy, SPANS))
    assert found == pytest.approx([value / total for value in expected], abs=1e-6)


def test_an_impossible_token_stays_impossible_only_where_every_reading_that_counts_forbids_it():
    never = -math.inf
    logits = {"factual": torch.tensor([[0.0, never, 1.0]]), "substituted 0": torch.tensor([[never, never, 0.0]])}
    mixed = CfSubstitutionPolicy().decide(logits, 0, []).log_p[0].exp().tolist()
    assert mixed == pytest.approx([0.5 / (1 + math.e), 0.0, 0.5 * math.e / (1 + math.e) + 0.5])
    assert CfSubstitutionPolicy(mean="logits").decide(logits, 0, []).log_p[0].exp().tolist() == [0.0, 0.0, 1.0]
    alone = CfSubstitutionPolicy(mean="logits", weight=0.0).decide(logits, 0, []).log_p[0].exp().tolist()
    assert alone == pytest.approx([1 / (1 + math.e), 0.0, math.e / (1 + math.e)])


def test_own_substitutions_replace_the_shipped_ones_are_told_and_none_is_vanilla(model: LanguageModel):
    policy = CfSubstitutionPolicy(pairs=("Sikh = Hindu", "Muslim = Baha'i; she = he"))
    planned = plan(model, TEXT, policy, SPANS)
    other = TEXT.replace("Muslim", "Baha'i").replace("she", "he")
    expected = [(p + q) / 2 for p, q in zip(distribution(model, TEXT), distribution(model, other), strict=True)]
    assert drawn_from(planned) == pytest.approx(expected, abs=1e-6)
    with pytest.raises(InvalidInputError, match="cannot be read"):
        CfSubstitutionPolicy(pairs=("Muslim",))
    text = "The nurse was late."
    spans = [cc.Span(4, 9, "other")]
    planned = plan(model, text, CfSubstitutionPolicy(), spans, seed=3, max_new_tokens=4)
    assert planned.warnings == (NOTHING_SUBSTITUTED, "No substitution is known for “nurse”, which all readings see.")
    runs = [cc.generate(model, text, policy, spans, 4, seed=3) for policy in (CfSubstitutionPolicy(), VanillaPolicy())]
    assert runs[0].tokens == runs[1].tokens
    assert runs[0].warnings == planned.warnings
    (sentence,) = plan(model, TEXT, CfSubstitutionPolicy(most=2), SPANS).warnings
    assert sentence.endswith("2 substituted readings of the prompt: she → he | Muslim → Jew.")


def test_the_model_reads_the_rewriting_by_rules_and_its_chain_is_the_plain_one_of_it(model: LanguageModel):
    rewritten = "The person said that they were late."
    planned = plan(model, TEXT, NeutralRewritePolicy(), SPANS)
    assert planned.warnings == (f"The model reads this rewriting of the prompt: “{rewritten}”",)
    assert drawn_from(planned) == pytest.approx(distribution(model, rewritten), abs=1e-6)
    rewritten = "The person said that they were late."
    policy = NeutralRewritePolicy(observe_masked=False)
    own = Rollout(plan(model, TEXT, policy, SPANS, seed=4, max_new_tokens=5))
    plain = Rollout(plan(model, rewritten, VanillaPolicy(observe_masked=False), (), seed=4, max_new_tokens=5))
    for _ in range(5):
        assert own.step().token_id == plain.step().token_id
    first, second = plan(model, "The nurse left.", NeutralRewritePolicy(), [cc.Span(4, 9, "other")]).warnings
    assert first == "Nothing in this prompt was rewritten, so the policy writes what vanilla decoding writes."
    assert "“nurse”, which stays" in second
    kept = [replace(span, kept=True) for span in SPANS]
    assert plan(model, TEXT, CfSubstitutionPolicy(), kept).warnings[-1] == NOTHING_SUBSTITUTED
    assert "Nothing in this prompt was rewritten" in plan(model, TEXT, NeutralRewritePolicy(), kept).warnings[-1]


@dataclass(frozen=True)
class Wrote:
    """A made-up answer of a rewriting model."""

    text: str
    cut: bool = False


def rewritten_as(
    monkeypatch: pytest.MonkeyPatch, model: LanguageModel, answer: Wrote, text: str = TEXT, **controls: object
) -> Plan:
    """A plan whose rewriting model answers as told; stops where the policy says that the answer is complete."""

    def write(writer: LanguageModel, ids: tuple[int, ...], most: int, ended: object) -> Wrote:
        for end in range(len(answer.text) + 1):
            if ended(answer.text[:end]):  # type: ignore[operator]
                return Wrote(answer.text[:end])
        return answer

    monkeypatch.setattr("coft_core.policies.neutral_rewrite.write_greedily", write)
    policy = NeutralRewritePolicy(by="model", instruction="{text} So:", **controls)  # type: ignore[arg-type]
    return plan(model, text, policy, SPANS)


def test_a_model_of_any_tokenizer_writes_the_rewriting_after_its_instruction(model: LanguageModel):
    policy = NeutralRewritePolicy(by="model", instruction="Write {text} anew:", longest=6)
    ids = list(model.tokenizer.encode(f"Write {TEXT} anew:"))
    written: list[int] = []
    with torch.inference_mode():
        for _ in range(6):
            written.append(int(model.module(torch.tensor([ids + written])).logits[0, -1].argmax()))
    expected = model.continuation_text(written).strip().splitlines()[0].strip()
    planned = plan(model, TEXT, policy, SPANS)
    assert planned.warnings[0] == f"The model reads this rewriting of the prompt: “{expected}”"
    assert drawn_from(planned) == pytest.approx(distribution(model, expected), abs=1e-6)
    words = (" a", " person", " left")
    other = scripted_model({" person": 1.0}, {" person": 1.0}, words)
    assert other.tokenizer_digest != model.tokenizer_digest
    policy = NeutralRewritePolicy(by="model", rewriter="other", instruction="a {text}", longest=2)
    planned = plan(model, " a left", policy, (), models={REWRITER: other})
    assert planned.warnings[-2].endswith("“person person”")
    prompt = mask_prompt(model.tokenizer, TEXT, SPANS)
    for policy in (NeutralRewritePolicy(), CfSubstitutionPolicy()):
        with pytest.raises(InvalidInputError, match="make a plan"):
            policy.branches(prompt)
    with pytest.raises(InvalidInputError, match="has no"):
        method("neutral_rewrite").build({"instruction": "Rewrite."})


def test_an_answer_ends_with_the_prompts_lines_what_it_leaves_is_said_and_none_is_refused(
    monkeypatch: pytest.MonkeyPatch, model: LanguageModel
):
    planned = rewritten_as(monkeypatch, model, Wrote("\n A person was late. \nText: more"))
    assert "“A person was late.”" in planned.warnings[0]
    planned = rewritten_as(monkeypatch, model, Wrote("The muslim was told", cut=True))
    assert [sentence.split(";")[0] for sentence in planned.warnings[1:]] == [
        "The rewriting was cut before its end",
        "The rewriting still has “Muslim”, which is masked in the prompt.",
    ]
    with pytest.raises(InvalidInputError, match="wrote nothing"):
        rewritten_as(monkeypatch, model, Wrote(" \n"))


def test_a_chat_models_rewriting_goes_through_its_template_and_keeps_its_lines(monkeypatch: pytest.MonkeyPatch):
    template = (
        "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{% if add_generation_prompt %}<a>{% endif %}"
    )
    chat = tiny_model(seed=1, chat_template=template)
    assert chat.chat
    planned = rewritten_as(monkeypatch, chat, Wrote("A person\nwas late."))
    assert "“A person\nwas late.”" in planned.warnings[0]
    own = next(branch for branch in planned.policy.branches(planned.prompt) if branch.name == "rewritten")
    assert byte_tokenizer().decode(list(own.input_ids)).endswith("<user>A person\nwas late.<a>")
