"""The image is built from the Dockerfile and run, where containers can be.

No registry is asked: the base is a Debian of its own, as the official one is made, and the Python packages are those
the tests run with, so that pip has only to see that each pinned one is there. All other lines do what they do anywhere.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.project.test_packaging import LOCKS, ROOT, free_port, own_lock

TOOLS = ("buildah", "debootstrap", "unshare")
RELEASE, ITS_PYTHON = "bookworm", (3, 11)
PACKAGES = f"{sysconfig.get_path('purelib')}:/usr/local/lib/python3.11/dist-packages:ro"
NAME = "localhost/coft-audit"


def why_not() -> str:
    """Why containers cannot be tried here; empty if they can."""
    if not os.environ.get("CI"):
        return "makes a whole system again, for a minute or two; runs where CI is set"
    if lacking := [tool for tool in TOOLS if shutil.which(tool) is None]:
        return f"{', '.join(lacking)} not installed (apt-get install buildah crun debootstrap)"
    if sys.version_info[:2] != ITS_PYTHON:
        return f"the packages here are of another Python than that of Debian {RELEASE}"
    if subprocess.run(["unshare", "--mount", "true"], stderr=subprocess.DEVNULL, check=False).returncode:
        return "file systems cannot be mounted here"
    return ""


pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(why_not()), reason=why_not() or "-"), pytest.mark.timeout(900)]


class Buildah:
    """Buildah with a store of its own, and without a kernel's namespaces but for files."""

    def __init__(self, folder: Path) -> None:
        self._options = ["--root", str(folder / "store"), "--runroot", str(folder / "run"), "--storage-driver", "vfs"]

    def command(self, *arguments: str) -> list[str]:
        return ["buildah", *self._options, *arguments]

    def __call__(self, *arguments: str) -> str:
        done = subprocess.run(self.command(*arguments), capture_output=True, text=True, check=False, cwd=ROOT)
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout.strip()


@pytest.fixture(scope="module")
def buildah(tmp_path_factory):
    folder = tmp_path_factory.mktemp("containers")
    yield Buildah(folder)
    # Each layer is a whole copy.
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def built(buildah, tmp_path_factory):
    """What the building of the image said."""
    system = tmp_path_factory.mktemp("debian") / "root"
    packages = "--include=python3,python3-pip,ca-certificates"
    done = subprocess.run(
        ["debootstrap", "--variant=minbase", packages, RELEASE, str(system)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        pytest.skip(f"no Debian could be fetched to build upon: {done.stdout[-300:]}")
    # As in the official image: a command of that name, and a pip that installs for the whole system.
    (system / "usr/bin/python").symlink_to("python3")
    base = buildah("from", "scratch")
    buildah("copy", "--quiet", base, str(system), "/")
    buildah("config", "--env", "PIP_BREAK_SYSTEM_PACKAGES=1", base)
    buildah("commit", "--quiet", base, "localhost/base")
    buildah("rm", base)
    shutil.rmtree(system)
    lock = f"{own_lock(tmp_path_factory.mktemp('lock'))}:/srv/coft-audit/{LOCKS[0]}:ro"
    return buildah(
        "build", "--isolation", "chroot", "--format", "docker", "--volume", PACKAGES, "--volume", lock,
        "--build-arg", "BASE_IMAGE=localhost/base", "--tag", NAME, ".",
    )  # fmt: skip


@contextmanager
def running(buildah, folder, port):
    """The image's own command, as its own user, with a folder for what it keeps."""
    container = buildah("from", NAME)
    told = json.loads(buildah("inspect", "--type", "image", NAME))["Docker"]["config"]
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    command = buildah.command(
        "run", "--isolation", "chroot", "--volume", PACKAGES, "--volume", f"{folder}:/data",
        "--env", "COFT_ACCOUNTS=elsewhere", "--env", f"COFT_PORT={port}", container, "--",
        *told["Entrypoint"], *told["Cmd"],
    )  # fmt: skip
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            for child in psutil.Process(process.pid).children(recursive=True):
                child.kill()
            process.kill()


def test_the_image_is_built_with_what_is_pinned(built):
    assert "Requirement already satisfied: torch==" in built
    assert "Successfully installed" not in built


def test_the_image_answers_as_a_user_without_rights_and_ends_when_it_is_told(buildah, built, tmp_path):
    port, data = free_port(), tmp_path / "data"
    with running(buildah, data, port) as process:
        ends = time.monotonic() + 120
        while True:
            assert process.poll() is None
            assert time.monotonic() < ends
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=5) as answer:
                    assert answer.status == 200
                break
            except OSError:
                time.sleep(0.2)
        store = data / "coft-audit.sqlite3"
        assert (store.stat().st_uid, store.stat().st_mode & 0o777) == (10001, 0o600)
        inside = psutil.Process(process.pid).children(recursive=True)
        served = next(one for one in inside if one.name().startswith("python"))
        assert served.uids().real == 10001
        first = next(one for one in inside if one.name() == "tini")
        first.terminate()
        first.wait(20)
        assert not served.is_running() or served.status() == psutil.STATUS_ZOMBIE
