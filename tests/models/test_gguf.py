"""A GGUF file is audited by llama.cpp at its own precision, with the numbers of the model that it was made of."""

import pytest
import torch

import coft_core as cc
from coft_core.errors import InvalidInputError, ModelLoadError
from coft_core.model.branches import BranchBatch, BranchSpec
from coft_core.model.group import BranchGroup
from coft_core.model.requirements import require_same_tokens

pytest.importorskip("llama_cpp", reason="llama.cpp is not installed (requirements-llama.txt)")
pytest.importorskip("gguf", reason="gguf is not installed (requirements-llama.txt)")

TEXT = "The nurse finished rounds and then he prepared the reports"
SPANS = [cc.Span(35, 37, "gender")]
POLICY = cc.CoftPolicy(sentinel=" person")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    from tests.gguf_of_demo import write_gguf

    place = tmp_path_factory.mktemp("gguf")
    for kind in ("F32", "Q4_0"):
        (place / kind).mkdir()
        write_gguf(place / kind / "demo.gguf", kind)
    return place


@pytest.fixture(scope="module")
def served(folder):
    return cc.load_model(str(folder / "F32"))


@pytest.fixture(scope="module")
def local():
    return cc.load_model("demo", device="cpu", dtype="float32")


def test_every_step_of_a_chain_has_the_numbers_of_the_transformers_engine(served, local):
    for seed in range(4):
        theirs, ours = (
            cc.generate(model, TEXT, POLICY, spans=SPANS, max_new_tokens=16, seed=seed).steps
            for model in (served, local)
        )
        assert [step.token_id for step in theirs] == [step.token_id for step in ours]
        for one, other in zip(theirs, ours, strict=True):
            for name in ("log_p_factual", "log_p_masked", "log_p_fused"):
                assert getattr(one, name) == pytest.approx(getattr(other, name), abs=1e-3)


def test_rows_that_go_back_fork_and_lose_neighbours_equal_a_text_that_is_read_again(served):
    rows = served.arbitrary_tokens(3, 40, seed=5).tolist()
    batch = BranchBatch(served, [rows[0], rows[1][:9], [*rows[0][:20], *rows[2][:4]]])
    written = served.arbitrary_tokens(3, 80, seed=6)  # (3, 80)
    batch.logits()
    for place in range(80):
        batch.append(written[:, place])
        batch.logits()
    batch.crop(30)
    fork = batch.fork(10)
    fork.append(written[:, 50])
    fork.keep([1, 2])
    texts = [rows[1][:9], [*rows[0][:20], *rows[2][:4]]]
    for row, (text, logits) in enumerate(zip(texts, fork.logits(), strict=True), 1):
        again = torch.tensor([[*text, *written[row, :10].tolist(), int(written[row, 50])]])
        torch.testing.assert_close(logits, served.plain_logits(again)[0, -1], atol=1e-3, rtol=0)
    batch.append(written[:, 30])
    again = torch.tensor([[*rows[0], *written[0, :31].tolist()]])
    torch.testing.assert_close(batch.logits()[0], served.plain_logits(again)[0, -1], atol=1e-3, rtol=0)


def test_more_rows_than_a_context_takes_equal_texts_that_are_read_again(served):
    batch = BranchBatch(served, [[5, 6, 7, 8 + row] for row in range(260)])
    batch.logits()
    batch.append(torch.full((260,), 9))
    again = served.plain_logits(torch.tensor([[5, 6, 7, 8 + row, 9] for row in range(260)]))[:, -1]
    torch.testing.assert_close(batch.logits(), again, atol=1e-4, rtol=0)
    batch.keep([2, 259])
    batch.append(torch.tensor([3, 4]))
    again = served.plain_logits(torch.tensor([[5, 6, 7, 10, 9, 3], [5, 6, 7, 267, 9, 4]]))[:, -1]
    torch.testing.assert_close(batch.logits(), again, atol=1e-4, rtol=0)


def test_forced_scores_equal_those_of_the_transformers_engine(served, local):
    theirs, ours = (cc.score(model, TEXT, " and left the room", POLICY, SPANS) for model in (served, local))
    assert [step.log_p_fused for step in theirs] == pytest.approx([step.log_p_fused for step in ours], abs=1e-3)


def test_a_text_that_is_read_in_pieces_has_the_same_logits(served, monkeypatch):
    ids = served.arbitrary_tokens(2, 9, seed=7)
    ids[1, :4] = ids[0, :4]
    whole = served.plain_logits(ids)
    monkeypatch.setattr("coft_core.model.llama_engine.PIECE", 4 * served.vocabulary_size)
    for begin in (0, 2, 6):
        pieces = list(served.engine.read(ids, begin))
        assert max(piece.shape[1] for piece in pieces) == 2
        torch.testing.assert_close(torch.cat(pieces, dim=1), whole[:, begin:], atol=1e-4, rtol=0)


def test_a_quantised_file_names_its_precision_and_has_another_digest(folder, served):
    quantised = cc.load_model(str(folder / "Q4_0" / "demo.gguf"))
    assert quantised.quantization == "Q4_0"
    assert served.quantization == "none"
    assert quantised.weights_digest != served.weights_digest


def test_what_reads_inside_a_model_says_that_llama_cpp_does_not_show_it(served):
    hooked = BranchSpec("steered", (5, 6, 7), hooks=(lambda module: None,))
    with pytest.raises(InvalidInputError, match=r"llama\.cpp does not show"):
        BranchGroup({"base": served}, [hooked]).logits()


def test_a_file_whose_tokenizers_disagree_is_refused_with_an_example(served):
    class Shifted:
        title = "llama.cpp"

        def encode(self, text):
            return [token + 1 for token in served.engine.encode(text)]

    with pytest.raises(ModelLoadError, match="different tokens of 'The nurse"):
        require_same_tokens("m.gguf", Shifted(), served.tokenizer)


def test_without_llama_cpp_a_sentence_says_how_to_install_it(folder, monkeypatch):
    monkeypatch.setattr("coft_core.model.llama_engine.importlib.util.find_spec", lambda name: None)
    with pytest.raises(ModelLoadError, match=r"requirements-llama\.txt"):
        cc.load_model(str(folder / "F32"))


def test_a_damaged_file_and_one_that_is_not_there_are_one_sentence(folder, tmp_path):
    whole = (folder / "Q4_0" / "demo.gguf").read_bytes()
    for content in (b"GGUF", whole[:3000], whole[:-100_000]):
        damaged = tmp_path / "m.gguf"
        damaged.write_bytes(content)
        with pytest.raises(ModelLoadError) as caught:
            cc.load_model(str(damaged))
        assert "\n" not in str(caught.value)
    with pytest.raises(ModelLoadError, match="holds no model that can be read here"):
        cc.load_model(str(tmp_path / "none.gguf"))


def test_options_for_other_weights_are_refused(folder):
    with pytest.raises(ModelLoadError, match="its own precision"):
        cc.load_model(str(folder / "F32"), quantization="8bit")
