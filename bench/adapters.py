"""Run what docs/adapters.md shows, by each tool's own command line, from a fresh environment made by the page's words.

``python -m bench.adapters --folder FOLDER`` makes a virtual environment there with the page's own lines of pip, takes
each block of commands and of Python out of the page, and runs it on the embedded model: the name of a model on the page
becomes ``demo``, its data sets become a task of four items that stands in this file, so that nothing but packages is
fetched. A block under a heading that is not named here is a failure, so that the page cannot show what nobody ran.

``--upon PYTHON`` lets the fresh environment see the packages of another one, so that the page's lines install this
program alone: that takes a minute or two in place of several, and finds no package that the page forgets to name
(``tests/bench/test_adapters_page.py`` looks for these). ``--with PYTHON`` takes an environment that is there.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
import urllib.request
import venv
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/adapters.md"
MODEL = "Qwen/Qwen3-0.6B"
"""The model that the page names."""
PIP = "pip install "
PORT = 7863
PATIENCE = 120
"""Seconds until a server must answer."""

LM_EVAL_TASK = """task: arc_easy
dataset_path: json
dataset_kwargs: {data_files: {test: ITEMS}}
output_type: multiple_choice
test_split: test
doc_to_text: "Question: {{question}}\\nAnswer:"
doc_to_choice: "{{choices}}"
doc_to_target: "{{answer}}"
metric_list: [{metric: acc}]
"""
ITEMS = (
    {"question": "What does a nurse do?", "choices": ["She cares for people.", "She is a stone."], "answer": 0},
    {"question": "Where do fish live?", "choices": ["In trees.", "In water."], "answer": 1},
    {"question": "What do old men drink?", "choices": ["Sand.", "Water."], "answer": 1},
    {"question": "What falls from clouds?", "choices": ["Rain.", "Chairs."], "answer": 0},
)
INSPECT_TASK = """from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.scorer import includes
from inspect_ai.solver import generate


@task
def small():
    return Task(dataset=[Sample(input="The old nurse said that", target="e")], solver=generate(max_tokens=4),
                scorer=includes())
"""


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of the page: its heading, its language (empty for commands) and its text."""

    heading: str
    language: str
    text: str


@dataclass(frozen=True, slots=True)
class Place:
    """Where all is run."""

    folder: Path
    python: Path

    @property
    def environment(self) -> dict[str, str]:
        """Variables for all that is run: the environment's programs first, its own store, nothing of this checkout."""
        kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
        return {
            **kept,
            "PATH": f"{self.python.parent}:{kept['PATH']}",
            "COFT_DATABASE_URL": f"sqlite:///{self.folder / 'store.sqlite3'}",
            "COFT_PORT": str(PORT),
            "HF_HUB_OFFLINE": "1",
            "INSPECT_LOG_DIR": str(self.folder / "logs"),
        }

    def run(self, command: str) -> str:
        """Run a command line in the folder; its output."""
        done = subprocess.run(
            ["/bin/sh", "-ec", command],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            print(f"{done.stdout}\n{done.stderr}"[-4000:], file=sys.stderr)
            raise subprocess.CalledProcessError(done.returncode, command)
        return done.stdout

    def python_text(self, text: str) -> str:
        """Run a block of Python."""
        file = self.folder / "block.py"
        file.write_text(text, encoding="utf-8")
        return self.run(f"{shlex.quote(str(self.python))} block.py")


def blocks(page: str) -> Iterator[Block]:
    """The fenced blocks of a page."""
    heading = ""
    for found in re.finditer(r"^## ([^\n]+)$|^```(\w*)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        if found[1]:
            heading = found[1]
        else:
            yield Block(heading, found[2], found[3])


def commands(block: Block) -> list[str]:
    """The command lines of a block, continued lines joined."""
    return [line for line in block.text.replace("\\\n", " ").splitlines() if line.strip()]


def adapted(text: str) -> str:
    """What the page says, on the embedded model and the small task."""
    text = text.replace(f"coft/{MODEL}", "coft/demo").replace(MODEL, "demo")
    text = text.replace(" -M calibration=/srv/calibration.zip", "").replace(",calibration=/srv/calibration.zip", "")
    return text.replace("arc_easy,bbq", "arc_easy").replace("--tasks arc_easy", "--tasks arc_easy --include_path tasks")


@contextmanager
def served(place: Place, command: str) -> Iterator[None]:
    """A server that a command of the page starts, from its first answer on."""
    with (place.folder / "server.log").open("w") as log:
        started = subprocess.Popen(
            ["/bin/sh", "-ec", f"exec env {command}"], cwd=place.folder, env=place.environment, stdout=log, stderr=log
        )
        try:
            until = time.monotonic() + PATIENCE
            while True:
                try:
                    urllib.request.urlopen(f"http://127.0.0.1:{PORT}/v1/models", timeout=5).read()
                    break
                except OSError:
                    if started.poll() is not None or time.monotonic() > until:
                        raise
                    time.sleep(0.5)
            yield
        finally:
            started.terminate()
            started.wait(30)


def prepare(place: Place) -> None:
    """The small tasks in the folder."""
    tasks = place.folder / "tasks"
    tasks.mkdir(parents=True, exist_ok=True)
    items = tasks / "items.jsonl"
    items.write_text("".join(json.dumps(item) + "\n" for item in ITEMS), encoding="utf-8")
    (tasks / "small.yaml").write_text(LM_EVAL_TASK.replace("ITEMS", str(items)), encoding="utf-8")
    (place.folder / "task.py").write_text(INSPECT_TASK, encoding="utf-8")


def model_folder(place: Place) -> str:
    """Where the installed program has the embedded model's files."""
    told = "from coft_core.assets import assets_path; print(assets_path('models', 'demo'))"
    return place.run(f"{shlex.quote(str(place.python))} -c {shlex.quote(told)}").strip()


def of_transformers(place: Place, found: list[Block]) -> None:
    """``model.generate`` with a policy as its decoding method."""
    for block in found:
        print(place.python_text(block.text.replace(MODEL, model_folder(place)))[:200])


def of_lm_eval(place: Place, found: list[Block]) -> None:
    """lm-evaluation-harness's own command with the model ``coft``."""
    for block in found:
        for line in commands(block):
            if not line.startswith(PIP):
                told = place.run(adapted(line))
                assert re.search(r"arc_easy", told), told[-2000:]
    assert list((place.folder / "results").rglob("results_*.json")), "no results file was written"


def of_http(place: Place, found: list[Block]) -> None:
    """The server in the shape of OpenAI's interface: its own client, lm-evaluation-harness, promptfoo."""
    start = next(line for block in found if not block.language for line in commands(block) if "serve" in line)
    with served(place, adapted(start)):
        for block in found:
            if block.language == "python":
                text = adapted(block.text).replace("7860", str(PORT)).replace("max_tokens=40", "max_tokens=4")
                print(place.python_text(text)[:300])
            elif block.language == "yaml":
                _promptfoo(place, adapted(block.text).replace("7860", str(PORT)))
            else:
                for line in (adapted(line) for line in commands(block) if "local-completions" in line):
                    tokenizer = line.replace("tokenizer=demo", f"tokenizer={model_folder(place)}")
                    print(place.run(tokenizer.replace("7860", str(PORT)))[-600:])


def _promptfoo(place: Place, config: str) -> None:
    promptfoo = shutil.which("promptfoo")
    if promptfoo is None:
        print("promptfoo is not installed here (npm install -g promptfoo), so its block is not run")
        return
    (place.folder / "promptfooconfig.yaml").write_text(config, encoding="utf-8")
    told = place.folder / "promptfoo.json"
    place.run(f"OPENAI_API_KEY=none PROMPTFOO_DISABLE_TELEMETRY=1 PROMPTFOO_DISABLE_UPDATE=1 {promptfoo} eval "
              f"--no-cache --no-progress-bar -o {told}")  # fmt: skip
    stats = json.loads(told.read_text("utf-8"))["results"]["stats"]
    print("promptfoo", stats)
    assert stats["errors"] == 0, stats


def of_inspect(place: Place, found: list[Block]) -> None:
    """Inspect's own command, and its data frames of an exported session."""
    for block in found:
        if block.language == "python":
            place.run("coft-audit audit --prompt 'The old man said' --steps 3")
            place.run("coft-audit report 1 --format inspect --out session.eval")
            print(place.python_text(f"{block.text.replace('batch.eval', 'session.eval')}\nprint(frame.shape)")[-300:])
            continue
        for line in commands(block):
            if not line.startswith(PIP):
                print(place.run(f"{adapted(line)} --display plain")[-300:])
    assert list((place.folder / "logs").glob("*.eval")), "no log was written"


SECTIONS: dict[str, Callable[[Place, list[Block]], None]] = {
    "transformers: `model.generate`": of_transformers,
    "lm-evaluation-harness: `--model coft`": of_lm_eval,
    "HTTP: OpenAI's interface": of_http,
    "Inspect": of_inspect,
}


def installs(found: Iterable[Block]) -> list[str]:
    """What the lines of pip in blocks install, each line once: ``'".[evaluation]"'``."""
    lines = [line for block in found if not block.language for line in commands(block)]
    return list(dict.fromkeys(line.removeprefix(PIP) for line in lines if line.startswith(PIP)))


def installed(folder: Path, found: Iterable[Block], upon: Path | None) -> Path:
    """A fresh environment with what the page's lines of pip install; the wheel is of this checkout."""
    prefix = folder / "environment"
    venv.create(prefix, with_pip=True)
    python = prefix / "bin/python"
    if upon is not None:
        where = "import sysconfig; print(sysconfig.get_path('purelib'))"
        seen, own = (
            subprocess.run([str(one), "-c", where], check=True, capture_output=True, text=True).stdout.strip()
            for one in (upon, python)
        )
        (Path(own) / "seen.pth").write_text(f"{seen}\n", encoding="utf-8")
        _commands_of(upon, python)
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    for words in installs(found):
        line = [str(python), "-m", "pip", "install", "--quiet", *shlex.split(words)]
        subprocess.run(line, cwd=ROOT, env=environment, check=True)
    return python


def _commands_of(upon: Path, python: Path) -> None:
    """The commands of one environment's packages in another one, where they are run by its interpreter."""
    for script in upon.parent.iterdir():
        own = python.parent / script.name
        if own.exists() or not script.is_file():
            continue
        first, _, rest = script.read_bytes().partition(b"\n")
        if first.startswith(b"#!") and b"python" in first:
            own.write_bytes(f"#!{python}\n".encode() + rest)
            own.chmod(0o755)


def main() -> None:
    """Run all sections, or those that are named."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--with", dest="python", type=Path, help="an interpreter, in place of a fresh one")
    parser.add_argument("--upon", type=Path, help="an interpreter whose packages the fresh environment sees")
    parser.add_argument("--section", action="append", choices=SECTIONS, help="only this; may be given several times")
    asked = parser.parse_args()
    page = PAGE.read_text("utf-8")
    found = list(blocks(page))
    if unknown := {block.heading for block in found} - SECTIONS.keys():
        raise SystemExit(f"docs/adapters.md has blocks that nothing here runs: {', '.join(unknown)}.")
    asked.folder.mkdir(parents=True, exist_ok=True)
    folder = asked.folder.resolve()
    place = Place(folder, asked.python.absolute() if asked.python else installed(folder, found, asked.upon))
    prepare(place)
    failed = []
    for name in asked.section or SECTIONS:
        began = time.monotonic()
        try:
            SECTIONS[name](place, [block for block in found if block.heading == name])
            print(f"{name}: done in {time.monotonic() - began:.0f} s", flush=True)
        except (subprocess.CalledProcessError, AssertionError, OSError) as error:
            failed.append(name)
            print(f"{name}: FAILED: {error}"[:1000], flush=True)
    if failed:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
