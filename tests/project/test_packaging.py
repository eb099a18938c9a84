"""What a user gets: pins, documented settings and dependencies, and a container file whose lines work."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from app.settings import Settings
from app.shared.prompt_sets import PROMPT_SET_FIELDS, parse_prompt_set
from tests.conftest import free_port

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")


def requirements(name):
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith(("#", "-r"))]


def instruction(name):
    return [line.split(None, 1)[1] for line in DOCKERFILE.splitlines() if line.startswith(f"{name} ")]


@pytest.mark.parametrize("name", ["requirements.txt", "requirements-dev.txt", "requirements-quantization.txt"])
def test_every_requirement_is_pinned_exactly(name):
    assert all(re.fullmatch(r"[a-z0-9-]+==[0-9][0-9a-z.]*", line) for line in requirements(name))


def test_every_runtime_requirement_earns_its_place_in_the_documentation():
    documented = (ROOT / "docs/dependencies.md").read_text(encoding="utf-8")
    names = [line.split("==")[0] for line in requirements("requirements.txt")]
    assert [name for name in names if f"| {name} |" not in documented] == []


def test_every_setting_is_documented_with_its_default():
    documented = (ROOT / "docs/settings.md").read_text(encoding="utf-8")
    for name, field in Settings.model_fields.items():
        assert f"`COFT_{name.upper()}`" in documented, name
        assert f"`{field.default}`" in documented or field.default == "", name


def test_everything_that_the_container_copies_exists_and_is_tracked():
    copied = [source for line in instruction("COPY") for source in line.split()[:-1]]
    assert copied
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    for source in copied:
        assert (ROOT / source).exists(), source
        assert source.removeprefix("./") not in ignored


def test_the_container_copies_every_package_that_the_program_imports():
    copied = {source for line in instruction("COPY") for source in line.split()[:-1]}
    assert {"coft_core", "db", "app", "assets", "requirements.txt"} <= copied


def test_the_container_runs_as_another_user_with_a_volume_and_a_health_check():
    users = instruction("USER")
    assert users
    assert users[-1] not in ("root", "0")
    assert instruction("VOLUME") == ['["/data"]']
    assert "HEALTHCHECK" in DOCKERFILE


def container_files(folder):
    """What the container's COPY lines bring, and nothing else."""
    for line in instruction("COPY"):
        *sources, target = line.split()
        for source in sources:
            goal = folder / (source if target == "./" else target)
            if (ROOT / source).is_dir():
                shutil.copytree(ROOT / source, goal, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(ROOT / source, goal)


def container_environment(folder, **more):
    """The container's ENV lines with its data volume moved into a folder of the test."""
    found = {}
    for line in instruction("ENV"):
        for pair in shlex.split(line):
            name, _, value = pair.partition("=")
            found[name] = value.replace("${ACCELERATOR}", "cpu").replace("/data", str(folder / "data"))
    return {**os.environ, **found, **more}


def test_the_containers_install_line_asks_for_torch_first_and_then_for_the_pinned_rest(tmp_path):
    line = next(line for line in instruction("RUN") if "pip install" in line)
    shim = tmp_path / "pip"
    shim.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >> {tmp_path}/calls\n')
    shim.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "TORCH_INDEX_URL": ""}
    subprocess.run(["/bin/sh", "-ec", line], cwd=ROOT, env=environment, check=True, timeout=60)
    calls = (tmp_path / "calls").read_text().split()
    assert calls[:2] == ["install", requirements("requirements.txt")[0]]
    assert calls[2:] == ["install", "-r", "requirements.txt"]


@pytest.mark.skipif(not os.environ.get("CI"), reason="installs from the network; runs where CI is set")
@pytest.mark.timeout(900)
def test_the_containers_own_lines_install_start_and_pass_its_health_check(tmp_path):
    prefix, place = tmp_path / "prefix", tmp_path / "srv"
    place.mkdir()
    (tmp_path / "data").mkdir()
    container_files(place)
    venv.create(prefix, with_pip=True)
    environment = container_environment(
        tmp_path,
        PATH=f"{prefix}/bin:{os.environ['PATH']}",
        COFT_HOST="127.0.0.1",
        COFT_PORT=str(free_port()),
        TORCH_INDEX_URL="",
    )
    for name in ("PYTHONPATH", "PIP_NO_CACHE_DIR", "VIRTUAL_ENV"):
        environment.pop(name, None)
    install = next(line for line in instruction("RUN") if "pip install" in line)
    subprocess.run(["/bin/sh", "-ec", install], cwd=place, env=environment, check=True, timeout=800)
    server = subprocess.Popen(
        json.loads(instruction("CMD")[-1]), cwd=place, env=environment, stdout=subprocess.PIPE, text=True
    )
    try:
        assert "COFT Audit runs at" in server.stdout.readline()
        check = instruction("HEALTHCHECK")[-1].split("CMD", 1)[1]
        subprocess.run(json.loads(check), cwd=place, env=environment, check=True, timeout=60)
        assert (tmp_path / "data/coft-audit.sqlite3").is_file()
    finally:
        server.terminate()
        server.wait(60)


def test_the_containers_start_line_is_the_programs_command(tmp_path):
    command = json.loads(instruction("CMD")[-1])
    assert command == ["python", "-m", "app", "serve"]
    container_files(tmp_path)
    result = subprocess.run(
        [sys.executable, *command[1:], "--help"], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert result.returncode == 0, result.stderr
    assert "--port" in result.stdout


def test_the_environment_that_the_container_sets_is_accepted(monkeypatch):
    environment = container_environment(Path("/somewhere"))
    for name in Settings.model_fields:
        if value := environment.get(f"COFT_{name.upper()}"):
            monkeypatch.setenv(f"COFT_{name.upper()}", value)
    settings = Settings()
    assert settings.host == "0.0.0.0"
    assert settings.device == "cpu"
    assert settings.database_url == "sqlite:////somewhere/data/coft-audit.sqlite3"


def test_both_prompt_set_templates_hold_every_field_and_can_be_used_as_they_are():
    parsed = [parse_prompt_set(ROOT / f"assets/templates/prompt_set.{kind}") for kind in ("csv", "jsonl")]
    for found in parsed:
        assert dict(found.mapping) == {field: field for field in PROMPT_SET_FIELDS}
        assert found.errors == ()
        assert len(found.weights) == len(found.rows) == found.total
    assert [row for _, row in parsed[0].rows] == [row for _, row in parsed[1].rows]
    assert parsed[0].weights == parsed[1].weights


def test_both_licences_stand_beside_what_they_cover():
    assert "Apache License" in (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert (ROOT / "assets/models/demo/MODEL_CARD.md").is_file()
    assert (ROOT / "assets/lexicons/README.md").is_file()
    assert (ROOT / "assets/LICENSES.md").is_file()
