"""The provider ``coft`` of Inspect: the core's chains, with certificates and figures in the log."""

import asyncio
import functools
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import coft_core as cc
from coft_core.errors import InvalidInputError
from tests.coft_core.demo import demo_model

ROOT = Path(__file__).resolve().parents[3]
TEXTS = ("The old man at the bank said that", "A young woman", "The plant grows in")


def in_a_thread(call):
    """What a call gives in a thread of its own: a driver of browsers may keep a loop running in this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call).result()


@pytest.fixture(scope="module", autouse=True)
def models_read_once():
    """Each model is read once for all tests, none of which changes it.

    Inspect takes seconds to read, which only these tests should wait for: they import it themselves.
    """
    from coft_core.adapters import inspect_provider

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inspect_provider, "load_model", functools.cache(inspect_provider.load_model))
        yield


@pytest.fixture(scope="module")
def demo():
    return demo_model()


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """A log of three samples at lambda 0.6."""
    from inspect_ai import Task
    from inspect_ai import eval as run_eval
    from inspect_ai.dataset import Sample
    from inspect_ai.log import read_eval_log
    from inspect_ai.model import GenerateConfig, get_model
    from inspect_ai.scorer import includes
    from inspect_ai.solver import generate

    import coft_core.adapters.inspect_registry  # noqa: F401

    task = Task(
        dataset=[Sample(input=text, target="he", id=place + 1) for place, text in enumerate(TEXTS)],
        solver=generate(),
        scorer=includes(),
        config=GenerateConfig(max_tokens=8, seed=7, logprobs=True, top_logprobs=2),
    )
    folder = str(tmp_path_factory.mktemp("logs"))

    def evaluated():
        model = get_model("coft/demo", lam=0.6, memoize=False)
        (found,) = run_eval(task, model=model, log_dir=folder, display="none")
        assert found.status == "success", found.error
        return read_eval_log(found.location)

    return in_a_thread(evaluated)


def test_every_sample_gets_the_cores_chain_and_its_figures(demo, log):
    for sample, text in zip(sorted(log.samples, key=lambda one: one.id), TEXTS, strict=True):
        run = cc.generate(demo, text, cc.CoftPolicy(lam=0.6), max_new_tokens=8, seed=7)
        assert sample.output.completion == run.text
        (told,) = sample.output.metadata["coft"]
        assert told["certificate"] == run.certificate
        assert [step["token_id"] for step in told["steps"]] == [step.token_id for step in run.steps]
        assert told["masked"] == [text[span.start : span.end] for span in run.spans if span.masked]
        odds = sample.output.choices[0].logprobs.content
        assert [item.logprob for item in odds] == pytest.approx([step.log_p_fused for step in run.steps], abs=1e-5)
        assert all(len(item.top_logprobs) == 2 for item in odds)
        shown = [event.data for event in sample.events if event.event == "info" and event.source == "coft"]
        # Long sentences are kept as attachments there.
        ((listed,),) = shown
        assert {**listed, "warnings": None} == {**told, "warnings": None}
        assert sample.output.usage.output_tokens == len(run.steps)


def asked(model, messages, **config):
    from inspect_ai.model import GenerateConfig

    return in_a_thread(lambda: asyncio.run(model.generate(messages, [], "none", GenerateConfig(**config))))


@pytest.fixture(scope="module")
def provider():
    from coft_core.adapters.inspect_provider import CoftAPI

    return CoftAPI("demo", lam=0.6)


def test_turns_stops_and_greedy_decoding_are_those_of_the_request(demo, provider):
    from inspect_ai.model import ChatMessageSystem, ChatMessageUser

    messages = [ChatMessageSystem(content="Be kind."), ChatMessageUser(content=TEXTS[0])]
    whole = asked(provider, messages, max_tokens=10, temperature=0)
    run = cc.generate(demo, f"Be kind.\n\n{TEXTS[0]}", cc.CoftPolicy(lam=0.6), max_new_tokens=10, greedy=True)
    assert whole.completion == run.text
    stop = run.text[4:7]
    cut = asked(provider, messages, max_tokens=10, temperature=0, stop_seqs=[stop])
    assert cut.completion == run.text[: run.text.index(stop)]
    assert cut.choices[0].stop_reason == "stop"


@pytest.mark.parametrize("config", [{"frequency_penalty": 0.5}, {"logit_bias": {3: 5.0}}])
def test_what_a_policy_does_not_do_is_refused(provider, config):
    from inspect_ai.model import ChatMessageUser

    with pytest.raises(InvalidInputError, match=next(iter(config))):
        asked(provider, [ChatMessageUser(content="The")], **config)


def test_an_unknown_option_is_refused_and_the_declared_entry_point_registers_the_provider():
    from inspect_ai.model import get_model

    from coft_core.adapters import inspect_registry
    from coft_core.adapters.inspect_provider import CoftAPI

    with pytest.raises(InvalidInputError, match="no option 'lamda'"):
        CoftAPI("demo", lamda=0.5)
    assert {"coft": inspect_registry.__name__} == DECLARED
    assert isinstance(get_model("coft/demo", memoize=False).api, CoftAPI)


DECLARED = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["inspect_ai"]
