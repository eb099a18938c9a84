"""A wrong setting ends every command in one sentence that has its name, its value and what is allowed."""

import os
import subprocess
import sys
from itertools import cycle
from pathlib import Path

from app.cli import main
from app.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
WRONG = {
    "PORT": ("x", "0", "65536", "7860.5"), "ACCOUNTS": ("maybe", "ON"), "SIGN_IN_HOURS": ("0",),
    "IDLE_MINUTES": ("-1",), "DEVICE": ("gpu", "cuda:one"), "DTYPE": ("int8",), "DEVICE_MAP": ("spread",),
    "MAX_MEMORY": ("20GiB",), "QUANTIZATION": ("2bit",), "PREFILL_TOKENS": ("0",), "PACKED_WEIGHTS_MB": ("-1",),
    "SNAPSHOTS_MB": ("1.5",), "MASK_FAMILIES": ("gender,colour",), "MAX_UPLOAD_MB": ("20mb",),
    "JOBS_PER_VISITOR": ("-1",), "UPLOADS_MB_PER_HOUR": ("many",), "DISK_MB": ("-5",), "DISK_MB_PER_ACCOUNT": ("1e3x",),
    "LOG": ("xml", "x" * 5000), "LIVE_ROLLOUTS": ("0",), "KV_MEMORY_MB": ("0",), "FULL_LOGITS_KB": ("-1",),
    "FASTER_STEPS": ("yes",), "MCP": ("perhaps",), "RAY_WORKERS": ("0",), "RAY_THREADS": ("-2",),
    "RAY_GPUS": ("nan", "inf"),
}  # fmt: skip
COMMANDS = (
    "serve", "sessions", "audit --prompt he", "audit --help", "policies", "calibrations list", "evaluations list",
    "lists show", "accounts list", "trail list", "batch list", "report 1", "verify missing.zip",
)  # fmt: skip


def test_every_command_refuses_every_wrong_setting_with_its_name_and_value(monkeypatch, capsys):
    checked = {name for name, field in Settings.model_fields.items() if field.metadata or field.annotation is not str}
    assert {name.lower() for name in WRONG} == checked
    commands = cycle(COMMANDS)
    for name, values in WRONG.items():
        for value in values:
            command = next(commands)
            with monkeypatch.context() as patched:
                patched.setenv(f"COFT_{name}", value)
                assert main(command.split()) == 2, (name, value, command)
            said = capsys.readouterr()
            assert (said.out, len(said.err.splitlines())) == ("", 1), (name, value, command)
            assert f"COFT_{name} is {value[:80]!r}; " in said.err, (name, value, command)


def test_each_of_several_wrong_settings_and_a_wrong_option_has_a_line(monkeypatch, capsys):
    monkeypatch.setenv("COFT_LOG", "xml")
    assert main(["serve", "--port", "70000"]) == 2
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 2
    assert "--port is '70000'" in said


def test_a_program_that_is_started_with_a_wrong_setting_ends_with_code_2_and_no_traceback():
    done = subprocess.run(
        [sys.executable, "-m", "app", "serve"], cwd=ROOT, env={**os.environ, "COFT_PORT": "x"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
