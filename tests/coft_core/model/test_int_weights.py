"""8-bit and 4-bit weights on a processor: what layers compute, what identifies a model, and that audits run on it."""

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import AutoConfig

import coft_core as cc
from coft_core.decode.captured import path_text, prepare_model
from coft_core.decode.cost import weight_bytes
from coft_core.errors import ModelLoadError
from coft_core.model.fake import byte_tokenizer
from coft_core.model.forced import teacher_forced_logits
from coft_core.model.int_weights import GROUP, IntLinear, int_layers, int_text, quantised
from coft_core.model.language_model import weights_digest
from coft_core.model.loading import Needs
from coft_core.model.needs import needs_of
from coft_core.model.packed import packed_bytes
from coft_core.model.placement import Placement
from coft_core.model.slots import token_size
from tests.models.tiny import tiny_module

BITS = pytest.mark.parametrize("bits", [8, 4])
PROMPT = "The nurse said that"
PEOPLE = ("The old man", "A young woman", "The Dutch girl", "Her brother", "The nun", "His aunt", "The boy", "A queen")


@pytest.fixture(scope="module", params=["8bit", "4bit"])
def embedded(request):
    return cc.load_model(device="cpu", quantization=request.param)


def layer(bits, outputs=48, width=64, bias=True):
    torch.manual_seed(0)
    linear = nn.Linear(width, outputs, bias=bias, dtype=torch.bfloat16)
    return linear, IntLinear(linear.weight, linear.bias, bits)


def meant(layer, codes, scales):
    """The weights that codes stand for, number by number."""
    weight = torch.zeros(layer.out_features, layer.in_features)
    for out in range(layer.out_features):
        for place in range(layer.in_features):
            code = int(codes[out, place])
            if layer.bits == 8:
                weight[out, place] = code * float(scales[out])
            else:
                scale, zero = scales[place // GROUP, out].tolist()
                weight[out, place] = (code - 8) * scale + zero
    return weight


@BITS
@pytest.mark.parametrize(("outputs", "width"), [(48, 64), (19, 45), (1, 7)])
def test_products_are_those_of_the_weights_that_the_codes_stand_for_at_any_width(bits, outputs, width):
    linear, quick = layer(bits, outputs, width)
    weight = meant(quick, *quantised(linear.weight, bits))
    rows = torch.randn(2, 3, width).bfloat16()
    expected = rows.float() @ weight.T + linear.bias.float()
    torch.testing.assert_close(quick(rows).float(), expected.detach(), atol=0.02, rtol=0.01)
    torch.testing.assert_close(quick.weight.float(), weight, atol=4e-3, rtol=0.01)
    # No weight is further from its own than half the distance of two codes, and what rounding the scale adds.
    steps = quick.scales.float() if bits == 8 else quick.scales[..., 0].float().T.repeat_interleave(GROUP, 1)
    steps = steps[:outputs, None] if bits == 8 else steps[:outputs, :width]
    assert bool(((weight - linear.weight.float()).abs() <= (0.5 + bits**2 / 100) * steps + 1e-6).all())


@BITS
def test_matrices_that_are_quantised_in_pieces_have_the_codes_of_whole_ones(bits, monkeypatch):
    weight = torch.randn(50, 64).bfloat16()
    whole = quantised(weight, bits)
    monkeypatch.setattr("coft_core.model.int_weights.CHUNK", 1000)
    for one, other in zip(whole, quantised(weight, bits), strict=True):
        assert torch.equal(one, other)


@BITS
def test_rows_of_zeros_and_damaged_weights_keep_what_they_are(bits):
    linear, _ = layer(bits)
    with torch.no_grad():
        linear.weight[3], linear.weight[5, 2] = 0.0, float("nan")
    products = IntLinear(linear.weight, None, bits)(torch.ones(1, 64).bfloat16())[0]
    assert float(products[3]) == 0.0
    assert bool(products[5].isnan())
    assert int(products.isnan().sum()) == 1


@BITS
def test_a_row_is_the_same_bit_by_bit_whatever_is_beside_it_and_however_many(bits):
    _, quick = layer(bits, 96, 352)
    rows = torch.randn(37, 352).bfloat16()
    alone = torch.cat([quick(row[None]) for row in rows])
    for count in (2, 3, 5, 8, 37):
        assert torch.equal(quick(rows[:count]), alone[:count])
    others = torch.cat([rows[:1], 1000 * torch.randn(4, 352).bfloat16()])
    assert torch.equal(quick(others)[0], alone[0])


@BITS
def test_the_digest_sees_every_code_and_not_the_order_in_which_a_processor_keeps_them(bits):
    linear, quick = layer(bits)
    digest = weights_digest(quick)
    quick.packed.copy_(quick.packed.flip(0))
    assert weights_digest(quick) == digest
    changed = linear.weight.detach().clone()
    changed[4, 6] = -changed[4, 6]
    assert weights_digest(IntLinear(changed, linear.bias, bits)) != digest
    assert weights_digest(layer(bits)[1]) == digest


def test_the_embedded_model_is_audited_certified_and_named_with_quantised_weights(embedded):
    asked = {"8-bit": "8bit", "4-bit": "4bit"}[embedded.quantization]
    whole = cc.load_model(device="cpu", dtype="bfloat16")
    assert embedded.dtype_name == "bfloat16"
    assert embedded.weights_digest == cc.load_model(device="cpu", quantization=asked).weights_digest
    assert embedded.weights_digest != whole.weights_digest
    assert embedded.parameter_count == whole.parameter_count
    assert len(int_layers(embedded.module)) == 6 * 7 + 1
    prepare_model(embedded)
    assert path_text(embedded) == f"traced; {int_text(embedded.module)}"
    examples = [cc.Example(f"{who} who {what}", " waited.") for who in PEOPLE for what in ("sang", "ran", "left")]
    calibration = cc.calibrate(embedded, examples, alpha=0.3)
    run = cc.generate(embedded, PROMPT, cc.CoftPolicy(calibration=calibration), max_new_tokens=8, seed=0)
    assert any(step.certified for step in run.steps)
    rows = [(tuple(embedded.tokenizer.encode(PROMPT)), tuple(step.token_id for step in run.steps))]
    one, other = (teacher_forced_logits(model, rows)[0].log_softmax(-1) for model in (whole, embedded))
    assert float((one.exp() * (one - other)).sum(-1).mean()) < (0.005 if asked == "8bit" else 0.1)


def saved(folder, kind, **settings):
    module = tiny_module(kind, **settings)
    module.save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    return module


def test_a_head_of_its_own_transposed_matrices_and_those_that_stay_are_counted(tmp_path):
    for kind, settings, kept in (
        ("llama", {"tie_word_embeddings": False}, 0), ("gpt2", {}, 0), ("mixtral", {"tie_word_embeddings": False}, 6),
    ):  # fmt: skip
        folder = tmp_path / kind
        module = saved(folder, kind, **settings)
        model = cc.load_model(str(folder), device="cpu", quantization="4bit")
        assert model.parameter_count == module.num_parameters()
        assert weight_bytes(model) < sum(p.numel() for p in module.parameters()) * 2
        assert int_text(model.module) == "weights 4-bit, head 8-bit" + (f", {kept} matrices bfloat16" if kept else "")
        assert sorted({each.bits for each in int_layers(model.module)}) == [4, 8]
        assert model.module.get_output_embeddings().bits == 8


@pytest.mark.parametrize("quantization", ["none", "8bit", "4bit"])
@pytest.mark.parametrize(("kind", "tied"), [("llama", True), ("llama", False), ("gpt2", True)])
def test_what_a_model_needs_is_known_before_it_is_read(tmp_path, quantization, kind, tied):
    sizes = {"hidden_size": 256, "intermediate_size": 512} if kind == "llama" else {"n_embd": 256, "n_inner": 512}
    saved(tmp_path, kind, tie_word_embeddings=tied, **sizes)
    options, told = {"device": "cpu", "quantization": quantization}, []
    model = cc.load_model(str(tmp_path), progress=told.append, **options)
    (needs,) = (each for each in told if isinstance(each, Needs))
    held = weight_bytes(model) + packed_bytes(model.module)
    assert needs.weight_bytes == pytest.approx(held, rel=0.02)
    assert needs.token_bytes == token_size(model)
    config = AutoConfig.from_pretrained(tmp_path)
    read = needs_of(config, Placement(**options).arguments("m", config), packed_bytes=0, bandwidth=1.0)
    embedding = model.module.get_input_embeddings().weight.nbytes
    unread = 0 if tied and quantization == "none" else embedding
    assert read.token_seconds == pytest.approx(weight_bytes(model) - unread, rel=0.02)


def test_weights_that_a_file_lacks_or_has_in_other_shapes_are_refused_in_one_sentence(tmp_path):
    saved(tmp_path, "llama")
    file = tmp_path / "model.safetensors"
    name, tensors = "model.layers.0.mlp.up_proj.weight", load_file(file)
    for weight in (None, tensors[name][:-16].contiguous()):
        others = {key: tensor for key, tensor in tensors.items() if key != name}
        save_file(others if weight is None else {**others, name: weight}, file, {"format": "pt"})
        with pytest.raises(
            ModelLoadError, match="lack 1 of its weights" if weight is None else "other shapes"
        ) as caught:
            cc.load_model(str(tmp_path), device="cpu", quantization="8bit")
        assert "\n" not in str(caught.value)
