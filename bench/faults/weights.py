"""Weights that a disk has damaged: they are refused or known as others, and work goes on with another model."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

from app.audit.service import AuditService
from app.shared.errors import USER_ERRORS
from bench.faults.circumstances import say_step, stored
from bench.faults.forking import Say, model, opened, run
from bench.faults.works import START, copied, half_written
from bench.load.loads import TINY, write_model
from coft_core.model.language_model import LanguageModel
from coft_core.model.load import load_model

BEFORE = 5
"""Steps that were stored while the weights were whole."""
BLOCK = 4096


def loader(name: str, **options: Any) -> LanguageModel:
    """The shared model by its name, and others from their folders."""
    return model() if name == START.settings.model else load_model(name, **options)


def damaged(data: bytes, draw: random.Random) -> bytes:
    """A file's bytes with one bit turned, a block of the disk overwritten, or the end cut off."""
    kind, place = draw.randrange(3), draw.randrange(len(data))
    if kind == 0:
        return data[:place] + bytes([data[place] ^ 1 << draw.randrange(8)]) + data[place + 1 :]
    if kind == 1:
        begin = place // BLOCK * BLOCK
        return data[:begin] + draw.randbytes(len(data[begin : begin + BLOCK])) + data[begin + BLOCK :]
    return data[:place]


def damage_often(times: int, place: Path, seed: int) -> tuple[int, list[str]]:
    """Damage the weights of a session's model; gives how often that was told in a sentence, and what was lost.

    Afterwards a session on another model is run in the same process, the weights are put back, and the first session
    goes on to its end.
    """
    draw = random.Random(seed)
    template, ground = place / "template", place / "ground"
    template.mkdir(parents=True)
    name = write_model(place / "model", TINY)
    file = place / "model" / "model.safetensors"
    whole = file.read_bytes()
    run(lambda folder, say: _begin(folder, say, name), template)
    run(_go_on, copied(template, ground))
    wanted, before = (stored(ground, branch=2) for ground in (ground, template))
    if len(before) != BEFORE or len(wanted) <= BEFORE:
        raise RuntimeError("The session could not be run although its weights are whole.")
    told, lost = 0, list[str]()
    for number in range(1, times + 1):
        file.write_bytes(damaged(whole, draw))
        ended = run(_try, copied(template, ground))
        file.write_bytes(whole)
        told += any(line.startswith("SAID ") for line in ended.said)
        found = [] if not ended.failed else [f"no sentence, but {ended.said[-1]}"]
        if "ANOTHER" not in ended.said:
            found.append("another model could not be used")
        if any(line not in wanted for line in ended.said if line[:1].isdecimal()):
            found.append("damaged weights wrote a token that whole ones do not")
        if stored(ground, branch=2)[:BEFORE] != before:
            found.append("a shown step is gone")
        run(_go_on, ground)
        if stored(ground, branch=2) != wanted:
            found.append("it did not go on to the end with whole weights")
        lost += [f"{number}: {what}" for what in found + half_written(ground)]
    return told, lost


def _begin(folder: Path, say: Say, name: str) -> None:
    """Begin a session on the shared model, and step one on the model of a folder."""
    with opened(folder, loader=loader) as wired:
        audits = wired[AuditService]
        audits.start(START)
        second = audits.start(replace(START, settings=replace(START.settings, model=name), name="two"))
        for step in audits.run(second.session_id):
            if step.index + 1 == BEFORE:
                break


def _try(folder: Path, say: Say) -> None:
    with opened(folder, loader=loader) as wired:
        audits = wired[AuditService]
        try:
            for step in audits.run(2):
                say_step(say, step)
        except USER_ERRORS as error:
            say(f"SAID {error}")
        for _ in audits.run(1):
            pass
        say("ANOTHER")


def _go_on(folder: Path, say: Say) -> None:
    with opened(folder, loader=loader) as wired:
        for _ in wired[AuditService].run(2):
            pass
