"""Spread, offloaded and split models: the same logits and digest, and what is refused in which words."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig

import coft_core as cc
from coft_core.errors import ModelLoadError
from coft_core.model.branches import BranchBatch
from coft_core.model.fake import byte_tokenizer
from coft_core.model.forced import teacher_forced_logits
from coft_core.model.language_model import weights_digest
from coft_core.model.loading import LoadingPhase, Needs
from coft_core.model.placement import Placement
from tests.models.tiny import tiny_module

SPREAD = {
    "model.embed_tokens": "cpu", "model.rotary_emb": "cpu", "model.layers.0": "cpu", "model.layers.1": "disk",
    "model.norm": "cpu", "lm_head": "cpu",
}  # fmt: skip
ROOT = Path(__file__).resolve().parents[3]
ROWS = [((5, 9, 2, 40), (41, 7, 8)), ((5, 9, 3, 40), (41, 7, 8)), ((1, 2), (3,))]


def saved(folder, dtype=torch.float32):
    module = tiny_module("llama", hidden_size=64, num_key_value_heads=4, head_dim=16, initializer_range=0.2)
    module.to(dtype).save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return saved(tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="module")
def whole(folder):
    return cc.load_model(folder, device="cpu")


@pytest.fixture(scope="module")
def spread(folder):
    return cc.load_model(folder, device_map=SPREAD)


def test_a_model_that_is_partly_on_the_disk_gives_the_same_logits(whole, spread):
    assert any(p.is_meta for p in spread.module.parameters())
    for one, other in zip(teacher_forced_logits(whole, ROWS), teacher_forced_logits(spread, ROWS), strict=True):
        assert torch.equal(one, other)
    batches = [BranchBatch(model, [ROWS[0][0], ROWS[2][0]]) for model in (whole, spread)]
    for token in (3, 4, 5):
        one, other = (batch.logits() for batch in batches)
        assert torch.equal(one, other)
        for batch in batches:
            batch.append(torch.full((2,), token))


def test_what_identifies_a_model_does_not_depend_on_where_it_is_which_it_says(whole, spread, monkeypatch):
    assert spread.weights_digest == whole.weights_digest
    assert spread.parameter_count == whole.parameter_count
    assert (spread.dtype, spread.device) == (whole.dtype, whole.device)
    assert whole.places == ("cpu",)
    assert spread.places == ("cpu", "disk")
    assert whole.quantization == "none"
    monkeypatch.setattr("coft_core.model.language_model.FULL_DIGEST_BYTES", 1000)
    assert weights_digest(spread.module) == weights_digest(whole.module)
    assert weights_digest(whole.module).startswith("sampled:")


def test_weights_that_are_read_from_the_disk_count_in_the_type_that_they_are_used_in(tmp_path):
    stored = saved(tmp_path, torch.float16)
    plain = cc.load_model(stored, device="cpu", dtype="float32")
    assert cc.load_model(stored, dtype="float32", device_map=SPREAD).weights_digest == plain.weights_digest


def test_maps_are_given_as_json_by_name_or_by_limits_of_memory(folder, whole, tmp_path):
    limited = cc.load_model(
        folder, device_map="auto", max_memory='{"cpu": "300KB"}', offload_folder=str(tmp_path / "offloaded")
    )
    assert limited.places == ("cpu", "disk")
    assert limited.weights_digest == whole.weights_digest
    for device_map in (json.dumps(SPREAD), "auto"):
        model = cc.load_model(folder, device_map=device_map)
        assert model.weights_digest == whole.weights_digest
        assert "cuda" not in " ".join(model.places) or torch.cuda.is_available()


def test_loading_tells_its_phases_and_what_cannot_be_done_is_refused(folder):
    for options, message in (
        ({"device_map": "everywhere"}, "is no device map"), ({"device_map": '{"": '}, "cannot be read"),
        ({"device_map": '{"": "nowhere"}'}, "cannot be read"),
        ({"device_map": "auto", "max_memory": "20GiB"}, "limits of memory '20GiB' cannot be read"),
        ({"device_map": "auto", "max_memory": "[1]"}, "cannot be read"),
        ({"device_map": {}, "max_memory": {"cpu": "1GiB"}}, "need a device map"),
        ({"device_map": "auto", "device": "cpu"}, "leave the device at 'auto'"),
        ({"quantization": "2bit"}, "is no quantization"), ({"tensor_parallel": 2}, "torchrun --nproc-per-node 2"),
        ({"tensor_parallel": 2, "quantization": "4bit"}, "leave the device map and the quantization out"),
        ({"device_map": {"": "cpu"}, "quantization": "8bit"}, "leave the device map out"),
        ({"device_map": SPREAD, "quantization": "4bit"}, "leave the device map out"),
        ({"dtype": "float32", "quantization": "4bit"}, "leave the type at 'auto'"),
        ({"prefill_tokens": 0}, "cannot read 0 tokens"),
    ):  # fmt: skip
        with pytest.raises(ModelLoadError, match=message) as caught:
            cc.load_model(folder, **options)
        assert "\n" not in str(caught.value)
    config = LlamaConfig(quantization_config={"quant_method": "gptq", "bits": 4})
    with pytest.raises(ModelLoadError, match=r"is quantised already \(gptq\)"):
        Placement(quantization="4bit").arguments("m", config)
    told = []
    cc.load_model(folder, device="cpu", progress=told.append)
    assert [each for each in told if not isinstance(each, Needs)] == list(LoadingPhase)
    assert isinstance(told[told.index(LoadingPhase.WEIGHTS) - 1], Needs)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
@pytest.mark.parametrize("place", [0, "cuda", "cuda:1"])
def test_a_map_to_a_gpu_that_is_not_there_is_refused(folder, place):
    with pytest.raises(ModelLoadError, match="no CUDA device"):
        cc.load_model(folder, device_map={"": place})


SPLIT = """
import json, os, sys
import torch
import torch.distributed.tensor
import transformers.models.llama.modeling_llama
import coft_core.public as cc
from coft_core.model.branches import BranchBatch
from coft_core.model.forced import teacher_forced_logits

# Both processes are copies of one that has read all modules.
other = os.fork()
os.environ["RANK"] = os.environ["LOCAL_RANK"] = "0" if other else "1"
folder, rows = sys.argv[1], json.loads(sys.argv[2])
torch.set_num_threads(1)
model = cc.load_model(folder, device="cpu", tensor_parallel=2)
logits = teacher_forced_logits(model, rows)
batch = BranchBatch(model, [tuple(rows[0][0]), tuple(rows[2][0])])
for token in (3, 4):
    logits.append(batch.logits())
    batch.append(torch.full((2,), token))
told = {"digest": model.weights_digest, "parameters": model.parameter_count, "places": model.places,
        "logits": [row.tolist() for row in logits]}
# Each process says what it has.
with open(sys.argv[3] + os.environ["RANK"], "w") as file:
    json.dump(told, file)
torch.distributed.destroy_process_group()
if other:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(other, 0)[1]))
"""


@pytest.mark.slow
def test_matrices_split_over_two_processes_give_the_same_logits_and_digest(folder, whole, tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {"WORLD_SIZE": "2", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    environment |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    done = subprocess.run(
        [sys.executable, "-c", SPLIT, folder, json.dumps(ROWS), str(tmp_path / "told")],
        capture_output=True, text=True, cwd=ROOT, timeout=240, env={**os.environ, **environment},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    logits, batch = teacher_forced_logits(whole, ROWS), BranchBatch(whole, [ROWS[0][0], ROWS[2][0]])
    for token in (3, 4):
        logits.append(batch.logits())
        batch.append(torch.full((2,), token))
    for told in (json.loads((tmp_path / f"told{rank}").read_text()) for rank in range(2)):
        assert told["digest"] == whole.weights_digest
        assert told["parameters"] == whole.parameter_count
        assert told["places"] == ["cpu:0", "cpu:1"]
        for expected, found in zip(logits, told["logits"], strict=True):
            torch.testing.assert_close(expected, torch.tensor(found), atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize(("stored", "multiplied", "chosen"), [
    (torch.bfloat16, True, torch.bfloat16), (torch.bfloat16, False, torch.float32),
    (torch.float16, True, torch.float32), (torch.float32, True, torch.float32), (None, True, torch.float32),
])  # fmt: skip
def test_the_type_on_a_processor_follows_what_is_stored_and_what_it_can_multiply(
    stored, multiplied, chosen, monkeypatch
):
    monkeypatch.setattr("coft_core.model.placement.multiplies_bfloat16", lambda: multiplied)
    config = LlamaConfig(dtype=stored)
    assert Placement(device="cpu").arguments("m", config)["dtype"] is chosen
    assert Placement(device="cpu", dtype="float16").arguments("m", config)["dtype"] is torch.float16


def test_failures_are_one_sentence_and_name_kernels_that_do_not_take_the_shapes(folder, monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("something else")

    monkeypatch.setattr("coft_core.model.requirements.AutoModelForCausalLM.from_pretrained", broken)
    with pytest.raises(ModelLoadError, match="cannot be loaded: something else"):
        cc.load_model(folder, device="cpu")

    def refuses(*_, **__):
        raise AssertionError("N must be divisible by block_n")

    monkeypatch.setattr(Placement, "arguments", lambda *_: {})
    monkeypatch.setattr("coft_core.model.requirements.AutoModelForCausalLM.from_pretrained", refuses)
    with pytest.raises(ModelLoadError, match=r"cannot run with 4bit weights here: N must be.*try another quantization"):
        cc.load_model(folder, quantization="4bit")
