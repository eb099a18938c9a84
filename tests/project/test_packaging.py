"""What a user gets: pins, documented settings and dependencies, and a container file whose lines work."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import venv
from importlib.metadata import distribution
from itertools import pairwise
from pathlib import Path

import httpx
import pytest
import yaml
from packaging.requirements import Requirement

from app.prompts.sets import PROMPT_SET_FIELDS, parse_prompt_set
from app.settings import Settings
from db.database import parse_url
from tests.conftest import free_port

ROOT = Path(__file__).resolve().parents[2]
LOCKS = ("requirements.lock", "requirements-postgresql.lock")
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ").replace("${LOCK}", LOCKS[0])


def requirements(name):
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith(("#", "-r"))]


def instruction(name):
    return [line.split(None, 1)[1] for line in DOCKERFILE.splitlines() if line.startswith(f"{name} ")]


PINNED = (
    "requirements.txt", "requirements-dev.txt", "requirements-quantization.txt", "requirements-postgresql.txt",
    "requirements-ray.txt",
)  # fmt: skip


def test_every_requirement_is_pinned_exactly_and_the_line_above_says_what_it_is_for():
    lines = [line for name in PINNED for line in requirements(name)]
    assert [line for line in lines if not re.fullmatch(r"[a-z0-9-]+==[0-9][0-9a-z.]*", line)] == []
    written = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    unsaid = [line for above, line in pairwise(written) if "==" in line and not above.startswith("# ")]
    assert unsaid == []
    assert "Apache License" in (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert (ROOT / "assets/models/demo/MODEL_CARD.md").is_file()
    assert (ROOT / "assets/lexicons/README.md").is_file()
    assert (ROOT / "assets/LICENSES.md").is_file()
    copied = {source for line in instruction("COPY") for source in line.split()[:-1]}
    assert {"coft_core", "db", "app", "assets", *LOCKS} <= copied


def test_everything_that_the_container_copies_exists_and_is_tracked():
    copied = [source for line in instruction("COPY") for source in line.split()[:-1]]
    assert copied
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    for source in copied:
        assert (ROOT / source).exists(), source
        assert source.removeprefix("./") not in ignored


def test_the_composed_services_fit_each_other_and_the_container():
    composed = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
    audit, database = composed["services"]["audit"], composed["services"]["database"]
    set_there = {name.removeprefix("COFT_").lower() for name in audit["environment"]}
    assert set_there <= set(Settings.model_fields)
    password = database["environment"]["POSTGRES_PASSWORD"]
    # The password has no default, and both sides are told the same one.
    assert ":?" in password
    url = parse_url(audit["environment"]["COFT_DATABASE_URL"].replace(password, "secret"))
    assert (url.username, url.password, url.database, url.host) == (
        database["environment"]["POSTGRES_USER"], "secret", database["environment"]["POSTGRES_DB"], "database"
    )  # fmt: skip
    assert audit["depends_on"] == {"database": {"condition": "service_healthy"}}
    assert database["healthcheck"]["test"][0] == "CMD-SHELL"
    (port,) = audit["ports"]
    address, _, inside = port.rsplit(":", 2)
    assert address == "127.0.0.1"
    assert inside in instruction("EXPOSE")
    # What both keep lies in volumes that outlive them, and the database is not reached from outside.
    mounted = {
        place.split(":")[0]: place.split(":")[1] for service in (audit, database) for place in service["volumes"]
    }
    assert set(mounted) == set(composed["volumes"])
    assert mounted["audit-data"] in json.loads(instruction("VOLUME")[0])
    assert audit["environment"]["COFT_SIGNING_KEY"].startswith(mounted["audit-data"])
    assert "ports" not in database
    # Neither writes to its file system or has rights, both have an end of memory, and no image goes by a tag.
    for service in (audit, database):
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert {"mem_limit", "tmpfs"} <= set(service)
    for image in (audit["build"]["args"]["BASE_IMAGE"], database["image"]):
        assert re.fullmatch(r"\$\{COFT_[A-Z_]+:\?[^}]+\}", image)


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


def locked(name):
    """The packages of a lock, each with whether a digest stands behind it."""
    text = (ROOT / name).read_text(encoding="utf-8").replace("\\\n", " ")
    return {line.split(" ", 1)[0]: "--hash=sha256:" in line for line in text.splitlines() if "==" in line.split(" ")[0]}


def test_the_container_is_built_from_locks_alone_which_hold_every_pin_with_a_digest(tmp_path):
    assert [line for line in instruction("ARG") if line.startswith(("BASE_IMAGE", "LOCK"))] == [
        "BASE_IMAGE", f"LOCK={LOCKS[0]}"
    ]  # fmt: skip
    assert instruction("FROM") == ["${BASE_IMAGE}"]
    line = next(line for line in instruction("RUN") if "pip install" in line)
    shim = tmp_path / "pip"
    shim.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >> {tmp_path}/calls\n')
    shim.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "LOCK": LOCKS[0]}
    subprocess.run(["/bin/sh", "-ec", line], cwd=ROOT, env=environment, check=True, timeout=60)
    assert (tmp_path / "calls").read_text().split() == ["install", "--require-hashes", "-r", LOCKS[0], "-r", LOCKS[1]]
    for lock, pins in zip(LOCKS, ("requirements.txt", "requirements-postgresql.txt"), strict=True):
        assert all(locked(lock).values())
        assert set(requirements(pins)) <= set(locked(lock))


def needed(names):
    """The packages that these need to run, and they themselves: all that the container's install line brings."""
    seen, left = {}, [Requirement(name) for name in names]
    while left:
        asked = left.pop()
        package, extras = distribution(asked.name), {"", *asked.extras}
        if extras <= seen.setdefault(package, set()):
            continue
        seen[package] |= extras
        left += [
            more
            for more in map(Requirement, package.requires or ())
            if not more.marker or any(more.marker.evaluate({"extra": extra}) for extra in extras)
        ]
    return list(seen)


def pinned():
    """The packages that the container has, as they are here."""
    return needed(["pip", *requirements("requirements.txt"), *requirements("requirements-postgresql.txt")])


def own_lock(folder):
    """A lock of the packages here, which pip finds to be there: torch and others may be of another build."""
    versions = {package.name: package.version.partition("+")[0] for package in pinned() if package.name != "pip"}
    lines = [f"{name}=={version} --hash=sha256:{'0' * 64}\n" for name, version in versions.items()]
    (folder / LOCKS[0]).write_text("".join(lines))
    return folder / LOCKS[0]


def linked_environment(prefix):
    """A Python environment that has what the container has and nothing else, by links into this one.

    Downloading and unpacking it again takes minutes, and ``make`` has just done so by the same pinned lines.
    """
    venv.create(prefix)
    (place,) = prefix.glob("lib/python*/site-packages")
    for package in pinned():
        for name in {file.parts[0] for file in package.files if file.parts[0] not in ("..", "__pycache__")}:
            if not (place / name).exists():
                (place / name).symlink_to(package.locate_file(name))
    pip = prefix / "bin" / "pip"
    pip.write_text(f'#!/bin/sh\nexec {prefix}/bin/python -m pip "$@"\n')
    pip.chmod(0o755)
    return place


@pytest.mark.slow
def test_the_containers_own_lines_install_start_and_pass_its_health_check(tmp_path):
    prefix, place = tmp_path / "prefix", tmp_path / "srv"
    place.mkdir()
    (tmp_path / "data").mkdir()
    container_files(place)
    own_lock(place)
    packages = linked_environment(prefix)
    assert not (packages / "pytest").exists()
    environment = container_environment(
        tmp_path,
        PATH=f"{prefix}/bin:{os.environ['PATH']}",
        COFT_HOST="127.0.0.1",
        COFT_PORT=str(free_port()),
        LOCK=LOCKS[0],
        # What is missing fails instead of being fetched.
        PIP_NO_INDEX="1",
    )
    for name in ("PYTHONPATH", "PIP_FIND_LINKS", "VIRTUAL_ENV"):
        environment.pop(name, None)
    install = next(line for line in instruction("RUN") if "pip install" in line)
    told = subprocess.run(
        ["/bin/sh", "-ec", install], cwd=place, env=environment, check=True, timeout=100, capture_output=True, text=True
    ).stdout
    assert f"Requirement already satisfied: {requirements('requirements.txt')[0]} in {packages}" in told
    command = json.loads(instruction("CMD")[-1])
    assert command == ["python", "-m", "app", "serve"]
    server = subprocess.Popen(command, cwd=place, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        assert "COFT Audit runs at" in server.stdout.readline()
        check = instruction("HEALTHCHECK")[-1].split("CMD", 1)[1]
        subprocess.run(json.loads(check), cwd=place, env=environment, check=True, timeout=60)
        assert (tmp_path / "data/coft-audit.sqlite3").is_file()
    finally:
        server.terminate()
        server.wait(60)


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


PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def least(lines):
    """Name and least version of each requirement."""
    return dict(re.fullmatch(r"([a-z0-9-]+)(?:\[[a-z]+\])?>=([0-9][0-9a-z.]*)", line).groups() for line in lines)


def test_the_package_asks_for_what_is_pinned_so_that_it_serves_without_an_extra():
    extras = PROJECT["optional-dependencies"]
    pinned = dict(line.split("==") for line in requirements("requirements.txt"))
    assert least(PROJECT["dependencies"]) == pinned
    every = {**dict(line.split("==") for line in requirements("requirements-dev.txt"))}
    every |= dict(line.split("==") for line in requirements("requirements-evaluation.txt"))
    evaluation = least(extras["evaluation"])
    assert {name: every.get(name) for name in evaluation} == evaluation
    driver = dict(line.split("==") for line in requirements("requirements-postgresql.txt"))
    assert least(extras["postgresql"]) == {"psycopg": driver["psycopg-binary"]} == {"psycopg": driver["psycopg"]}
    cluster = dict(line.split("==") for line in requirements("requirements-ray.txt"))
    assert least(extras["ray"]) == {"ray": cluster["ray"]}
    runner = dict(line.split("==") for line in requirements("requirements-llama.txt"))
    assert least(extras["llama"]) == runner
    quantised = dict(line.split("==") for line in requirements("requirements-quantization.txt"))
    assert least(extras["cuda"]) == quantised
    assert set(extras) == {"cuda", "evaluation", "llama", "postgresql", "ray"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    build = [*PIP, "wheel", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(folder), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True, text=True, timeout=250)
    (file,) = folder.glob("*.whl")
    return file


@pytest.fixture(scope="module")
def installed(wheel):
    """The wheel, installed into a folder of its own without what it needs, which this environment has."""
    place = wheel.parent / "installed"
    install = [*PIP, "install", "--no-deps", "--no-index", "--target", str(place), str(wheel)]
    subprocess.run(install, check=True, capture_output=True, text=True, timeout=250)
    return place


def answered(installed, *words, **more):
    """What a program prints that sees the installed package and not this folder."""
    environment = {**os.environ, "PYTHONPATH": str(installed), **more}
    done = subprocess.run(
        words, cwd=installed.parent, env=environment, capture_output=True, text=True, timeout=250, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.slow
def test_the_wheel_holds_every_file_of_the_program_and_nothing_of_its_tests(installed):
    listed = [
        path.relative_to(ROOT).as_posix()
        for folder in ("coft_core", "db", "app", "assets")
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    ]
    missing = [path for path in listed if not (installed / re.sub("^assets/", "coft_assets/", path)).is_file()]
    assert listed
    assert missing == []
    assert {path.name for path in installed.iterdir()} - {"bin"} == {
        "coft_core", "db", "app", "coft_assets", f"coft_audit-{PROJECT['version']}.dist-info"
    }  # fmt: skip


@pytest.mark.slow
def test_the_installed_library_needs_nothing_of_the_pages_and_the_installed_command_audits(installed, tmp_path):
    report, store = tmp_path / "report.csv", f"sqlite:///{tmp_path / 'audits.sqlite3'}"
    script = (
        "import sys, coft_core as cc; model = cc.load_model('demo'); "
        "run = cc.generate(model, 'The old man said', cc.CoftPolicy(), max_new_tokens=3); "
        "pages = {'gradio', 'sqlalchemy', 'plotly', 'app', 'db'}; "
        "print(cc.__file__, len(run.tokens), pages & set(sys.modules)); "
        "from importlib.metadata import entry_points as found; "
        "print([(g, e.name, e.load() is not None) for g in ('lm_eval.models', 'inspect_ai') for e in found(group=g)]); "
        "sys.argv = ['coft-audit', 'audit', '--prompt', 'The old man said', '--steps', '2', "
        f"'--out', {str(report)!r}]; "
        "from app.__main__ import run; run()"
    )
    told = answered(installed, sys.executable, "-c", script, COFT_DATABASE_URL=store).strip().splitlines()
    path, *library = told[0].split(maxsplit=1)
    assert Path(path).is_relative_to(installed)
    assert library == ["3 set()"]
    assert told[1] == "[('lm_eval.models', 'coft', True), ('inspect_ai', 'coft', True)]"
    assert len(report.read_text(encoding="utf-8").splitlines()) == 3
    assert "audit" in answered(installed, str(installed / "bin/coft-audit"), "--help")


@pytest.mark.slow
@pytest.mark.timeout(900)  # The program is started four times.
def test_the_wheel_in_a_fresh_environment_serves_audits_and_checks(wheel, tmp_path):
    prefix, port = tmp_path / "fresh", free_port()
    linked_environment(prefix)
    # What it needs is there by the pinned lines; something else that is missing fails instead of being fetched.
    install = [str(prefix / "bin/python"), "-m", "pip", "install", "--no-index", str(wheel)]
    subprocess.run(install, check=True, capture_output=True, timeout=100)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"COFT_PORT": str(port), "COFT_DATABASE_URL": f"sqlite:///{tmp_path}/x.sqlite3"}
    program, given = str(prefix / "bin/coft-audit"), {"cwd": tmp_path, "env": environment, "text": True}
    server = subprocess.Popen([program], stdout=subprocess.PIPE, **given)
    try:
        assert "COFT Audit runs at" in server.stdout.readline()
        assert httpx.get(f"http://127.0.0.1:{port}/health", trust_env=False).status_code == 200
    finally:
        server.terminate()
        server.wait(60)
    for words, code in (("audit --prompt Hello --steps 2", 0), ("check --init a.yaml", 0), ("check a.yaml --json", 1)):
        done = subprocess.run([program, *words.split()], capture_output=True, timeout=200, **given)
        assert done.returncode == code, done.stderr
    assert json.loads(done.stdout)["verdict"] == "fail"


def test_without_what_it_needs_the_command_says_what_to_install():
    script = (
        "import sys; sys.modules['typer'] = None; sys.argv = ['coft-audit']; import app.__main__; app.__main__.run()"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("coft-audit: ")
    assert "'typer'" in line
    assert "pip install coft-audit" in line


def test_the_locked_requirements_are_the_pinned_ones_with_a_digest_for_every_file_and_no_host():
    text = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    assert "://" not in text
    locked = dict(re.findall(r"^([a-z0-9-]+)==([^ ]+)", text, re.MULTILINE))
    pinned = dict(line.split("==") for line in requirements("requirements.txt"))
    assert {name: locked.get(name) for name in pinned} == pinned
    entries = re.split(r"\n(?=[a-z])", text)[1:]
    assert len(entries) > len(pinned)
    assert [entry for entry in entries if not re.search(r"--hash=sha256:[0-9a-f]{64}", entry)] == []
