"""The models that are known here."""

from dataclasses import asdict

from app.models.service import KnownModel, ModelShelf, Shelf
from app.shared.needs import READ
from app.shared.operations import Json, operation
from app.shared.wiring import Services


def _json(shelf: Shelf) -> Json:
    def model(known: KnownModel) -> Json:
        runs = [{"calibration_id": run.id, "name": run.name} for run in known.calibrations]
        return {**asdict(known), "calibrations": runs}

    return {"models": [model(known) for known in shelf.models], "key_value_bytes": shelf.key_value_bytes}


def _print(shelf: Shelf) -> None:
    for known in shelf.models:
        step = "" if known.step_seconds is None else f", {known.step_seconds * 1000:,.0f} ms a step"
        runs = f"{len(known.calibrations)} calibration{'' if len(known.calibrations) == 1 else 's'}"
        print(f"{known.name}: {known.source}, {runs}{step}")


@operation(need=READ, command="models", json=_json, text=_print)
def list_models(wired: Services) -> Shelf:
    """List the models that are known here: the embedded one, those of the settings, and those that were used.

    Returns:
        models (name, source, stored_bytes, context_length, parameters and memory_bytes of a loaded one, where it runs,
        step_seconds as the median of the newest steps, how many these are, calibrations), and key_value_bytes: what
        keys and values of all work hold at the moment
    """
    return wired[ModelShelf].list()
