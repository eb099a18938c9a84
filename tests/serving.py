"""Servers of models that tests start on loopback: real ones, and one of our own that can be told to fail."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock, Thread
from typing import Any

import pytest
import torch

from coft_core.model.language_model import LanguageModel
from coft_core.model.served import ServedModel
from tests.conftest import free_port

KEY, KEY_ENV = "sk-secret-of-the-lab", "COFT_TEST_LAB_KEY"

Fault = Callable[[dict[str, Any]], Any]
"""Takes the right answer to a request for next tokens and returns a wrong one: JSON, text, or a status."""


@cache
def sorted_tokens(model: LanguageModel, prompt: tuple[int, ...]) -> tuple[list[int], list[float]]:
    """All next tokens with their log-probabilities, the likeliest first."""
    log_p = torch.log_softmax(model.plain_logits(torch.tensor([prompt]))[0, -1].float(), -1)  # (V,)
    ids = log_p.argsort(descending=True)
    return ids.tolist(), log_p[ids].tolist()


@dataclass
class LocalServer:
    """Answers as vLLM does, with what a model here computes; ``faults`` are used up, one a request."""

    model: LanguageModel
    most: int | None = None
    tokenizes: bool = True
    names: bool = True
    listed: dict[str, Any] = field(default_factory=lambda: {"id": "lab", "root": "/models/lab"})
    faults: deque[Fault] = field(default_factory=deque)
    requests: list[dict[str, Any]] = field(default_factory=list)
    lock: Lock = field(default_factory=Lock)
    port: int = field(default_factory=free_port)

    def served(self, folder: Path, **more: Any) -> ServedModel:
        """How it is found; the tokenizer is written to a folder."""
        self.model.tokenizer.save_pretrained(folder)
        about = {
            "url": f"http://127.0.0.1:{self.port}/v1",
            "kind": "vllm",
            "tokenizer": str(folder),
            "key_env": KEY_ENV,
        }
        return ServedModel(name="lab", **{**about, **more})

    def completions(self, body: dict[str, Any]) -> Any:
        """Next tokens of several prompts, with the drawn one at the end, which is an unlikely one."""
        count, size, names = body["logprobs"], self.model.vocabulary_size, body.get("logprob_token_ids", [])
        if self.most is not None and not 0 <= count <= self.most:
            return 400
        choices = []
        for index, prompt in enumerate(body["prompt"]):
            ids, log_p = sorted_tokens(self.model, tuple(prompt))
            asked = size if count < 0 else count
            if names and self.names:
                ids, log_p = names, [log_p[ids.index(name)] for name in names]
                asked = len(names)
            pairs = zip([ids[-1], *ids[:asked]], [log_p[-1], *log_p[:asked]], strict=True)
            top = {f"token_id:{token}": value for token, value in pairs}
            choices.append({"index": index, "logprobs": {"top_logprobs": [top]}})
        return {"choices": choices[::-1]}

    def answer(self, path: str, body: dict[str, Any]) -> Any:
        """The answer to a request: JSON, text, or a status."""
        if path == "/v1/completions":
            with self.lock:
                self.requests.append(body)
                fault = self.faults.popleft() if self.faults else None
            right = self.completions(body)
            return right if fault is None else fault(right)
        if path == "/tokenize" and self.tokenizes:
            return {"tokens": self.model.tokenizer.encode(body["prompt"], add_special_tokens=False)}
        found = {"/v1/models": {"data": [{"max_model_len": self.model.context_length, **self.listed}]}}
        return {**found, "/version": {"version": "1.2.3"}}.get(path, 404)

    @contextmanager
    def running(self) -> Iterator[LocalServer]:
        """Answer inside this block."""
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.do_POST()

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))) or b"{}")
                right_key = self.headers["authorization"] == f"Bearer {KEY}"
                found = outer.answer(self.path, body) if right_key else 401
                status, said = (
                    (found, {"error": f"no, {self.headers['authorization']}"})
                    if isinstance(found, int)
                    else (200, found)
                )
                data = said.encode() if isinstance(said, str) else json.dumps(said).encode()
                try:
                    self.send_response(status)
                    self.send_header("content-length", str(len(data)))
                    self.end_headers()
                    self.wfile.write(data)
                except OSError:
                    self.close_connection = True

            def log_message(self, *_: Any) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        server.daemon_threads = True
        thread = Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            server.shutdown()
            server.server_close()
            thread.join()


@contextmanager
def started(command: list[str], until: str, **environment: str) -> Iterator[None]:
    """A program that says when it is ready, and is ended at the end of this block."""
    said = []
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, **environment}
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            said.append(line)
            if until in line:
                break
        else:
            pytest.fail("".join(said[-20:]))
        # Whoever stops reading lets the program wait when the pipe is full.
        Thread(target=process.stdout.read, daemon=True).start()
        try:
            yield
        finally:
            process.terminate()


def program(name: str, variable: str) -> str:
    """A server's program; tests are skipped where there is none."""
    found = os.environ.get(variable) or shutil.which(name)
    if not found or not Path(found).is_file():
        pytest.skip(f"there is no {name} here (PATH, or {variable})")
    return found


@contextmanager
def llama_server(file: Path, *more: str) -> Iterator[ServedModel]:
    """llama.cpp's server of a file of the embedded model, with keys and values of 32 bits."""
    port = free_port()
    exact = ["--cache-type-k", "f32", "--cache-type-v", "f32", "--flash-attn", "off", "--threads", "1"]
    command = [program("llama-server", "COFT_LLAMA_SERVER"), "--model", str(file), "--host", "127.0.0.1"]
    with started([*command, "--port", str(port), "--parallel", "2", *exact, *more], "listening on"):
        yield ServedModel(name="gguf", url=f"http://127.0.0.1:{port}", kind="llama-server", tokenizer="demo")


@contextmanager
def vllm(folder: Path, *more: str) -> Iterator[ServedModel]:
    """vLLM's server of a folder, on the processor."""
    port = free_port()
    command = [program("vllm", "COFT_VLLM"), "serve", str(folder), "--host", "127.0.0.1", "--port", str(port)]
    options = ["--dtype", "float32", "--max-logprobs", "-1", "--enforce-eager", *more]
    quiet = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_DO_NOT_TRACK": "1", "HF_HUB_OFFLINE": "1"}
    with started([*command, *options], "Application startup complete", **quiet):
        yield ServedModel(name="vllm", url=f"http://127.0.0.1:{port}", kind="vllm", tokenizer=str(folder))
