"""Which models are known here, and what is known of each of them; none is loaded for that."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from huggingface_hub import try_to_load_from_cache

from app.hosting.limits import OfferedModels
from app.hosting.model_host import ModelHost, where_it_runs
from app.shared.wiring import Services
from coft_core.decode.cost import weight_bytes
from coft_core.errors import ModelLoadError
from coft_core.model.load import CONTEXT_LENGTHS, DEMO, model_source
from db.calibrations import CalibrationRecord, CalibrationsRepository
from db.library import LibraryRepository
from db.sessions import SessionsRepository

WEIGHTS = (".safetensors", ".bin", ".gguf")


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownModel:
    """A model; what is only known of a loaded one is None for others."""

    name: str
    source: str
    calibrations: tuple[CalibrationRecord, ...]
    stored_bytes: int | None = None
    context_length: int | None = None
    step_seconds: float | None = None
    steps: int = 0
    parameters: int | None = None
    memory_bytes: int | None = None
    runs: str = ""


@dataclass(frozen=True, slots=True)
class Shelf:
    """The models that are known, and the bytes of keys and values that all work on them holds."""

    models: tuple[KnownModel, ...]
    key_value_bytes: int


class ModelShelf:
    """Says which models are known, by the settings and by what was done here."""

    def __init__(self, services: Services) -> None:
        self._settings, self._host = services.settings, services[ModelHost]
        self._calibrations, self._sessions = services[CalibrationsRepository], services[SessionsRepository]
        self._library = services[LibraryRepository]

    def list(self) -> Shelf:
        """The models: the embedded one, those of the settings, and those that were used here."""
        calibrations = self._calibrations.list()
        offered = OfferedModels(self._settings.models, self._settings.served_models)
        used = {name for name, _ in self._library.choices().models} | {run.model for run in calibrations}
        names = self._configured()
        names |= dict.fromkeys(sorted(used - names.keys()), "used here")
        known = [
            self._known(name, source, tuple(run for run in calibrations if run.model == name))
            for name, source in names.items()
            if offered.offers(name)
        ]
        return Shelf(tuple(known), self._host.memory.budget.size)

    def _configured(self) -> dict[str, str]:
        """Names by the settings, with which one says so; of a folder, all models below it."""
        listed = [part.strip() for part in self._settings.models.split(",") if part.strip()]
        found = {DEMO: "embedded", self._settings.model: "COFT_MODEL"}
        for part in listed:
            if Path(part).is_absolute():
                found |= {str(file.parent): f"folder {part}" for file in sorted(Path(part).glob("**/config.json"))}
            elif not part.endswith("/"):
                found[part] = "COFT_MODELS"
        found |= dict.fromkeys(self._settings.served_models, "COFT_SERVED")
        return {**found, DEMO: "embedded"}

    def _known(self, name: str, source: str, calibrations: tuple[CalibrationRecord, ...]) -> KnownModel:
        seconds = self._sessions.step_seconds(name)
        told: dict[str, Any] = {"step_seconds": median(seconds) if seconds else None, "steps": len(seconds)}
        told |= _stored(name)
        if (model := self._host.peek(name)) is not None:
            told |= {
                "context_length": model.context_length,
                "parameters": model.parameter_count,
                "memory_bytes": weight_bytes(model),
                "runs": where_it_runs(model.places, model.quantization),
            }
        return KnownModel(name=name, source=source, calibrations=calibrations, **told)


def _stored(name: str) -> dict[str, int | None]:
    """Size and context of a model by its files on this computer; nothing where it has none."""
    try:
        place = Path(model_source(name))
        cached = None if place.exists() else try_to_load_from_cache(name, "config.json")
    except (ModelLoadError, ValueError):
        return {}
    if place.is_file():
        return {"stored_bytes": place.stat().st_size}
    folder = Path(cached).parent if isinstance(cached, str) else place
    if not (folder / "config.json").is_file():
        return {}
    config = json.loads((folder / "config.json").read_text("utf-8"))
    text = config.get("text_config") or config
    return {
        "stored_bytes": sum(file.stat().st_size for file in folder.iterdir() if file.suffix in WEIGHTS) or None,
        "context_length": next((text[key] for key in CONTEXT_LENGTHS if text.get(key)), None),
    }
