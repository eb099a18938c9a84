"""What a user gets: pins, documented settings and dependencies, and a container file whose lines work."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from app.settings import Settings

ROOT = Path(__file__).resolve().parents[3]
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")


def requirements(name):
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith(("#", "-r"))]


def instruction(name):
    return [line.split(None, 1)[1] for line in DOCKERFILE.splitlines() if line.startswith(f"{name} ")]


@pytest.mark.parametrize("name", ["requirements.txt", "requirements-dev.txt"])
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


def test_the_containers_install_line_resolves_in_a_clean_prefix(tmp_path):
    """The container's own RUN line, with pip told to resolve and stop before writing anything."""
    line = next(line for line in instruction("RUN") if "pip install" in line)
    shim = tmp_path / "pip"
    shim.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >> {tmp_path}/calls\n')
    shim.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "TORCH_INDEX_URL": ""}
    subprocess.run(["/bin/sh", "-ec", line], cwd=ROOT, env=environment, check=True, timeout=60)
    calls = (tmp_path / "calls").read_text().split()
    assert calls[:2] == ["install", requirements("requirements.txt")[0]]
    assert calls[2:] == ["install", "-r", "requirements.txt"]


def test_the_containers_start_line_is_the_programs_command(tmp_path):
    command = [part.strip('"') for part in instruction("CMD")[-1].strip("[]").replace(",", " ").split()]
    assert command == ["python", "-m", "app", "serve"]
    for source in ("app", "coft_core", "db", "assets"):
        (tmp_path / source).symlink_to(ROOT / source)
    result = subprocess.run(
        [sys.executable, *command[1:], "--help"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert "--port" in result.stdout


def test_the_environment_that_the_container_sets_is_accepted(monkeypatch):
    for line in instruction("ENV"):
        for pair in shlex.split(line):
            name, _, value = pair.partition("=")
            if name.startswith("COFT_"):
                monkeypatch.setenv(name, value.replace("${ACCELERATOR}", "cpu"))
    settings = Settings()
    assert settings.host == "0.0.0.0"
    assert settings.device == "cpu"
    assert settings.database_url.startswith("sqlite:////data/")


def test_both_licences_stand_beside_what_they_cover():
    assert "Apache License" in (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert (ROOT / "assets/models/demo/MODEL_CARD.md").is_file()
    assert (ROOT / "assets/lexicons/README.md").is_file()
    assert (ROOT / "assets/LICENSES.md").is_file()
