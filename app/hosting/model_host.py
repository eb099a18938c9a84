"""The sole owner of loaded models."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from threading import Condition, Lock
from typing import Literal
from weakref import WeakValueDictionary

from cachetools import Cache, LRUCache
from transformers.utils.logging import disable_progress_bar

from app.hosting.limits import OfferedModels
from app.hosting.memory import DeviceMemory, MemoryBudget, Turns, free_unused
from app.shared.audits import KeptMemory, ModelView
from app.shared.wiring import Services
from coft_core.decode.captured import path_text, prepare_model
from coft_core.decode.plan import check_models
from coft_core.model.compiled import NOT_PREPARED, path_of
from coft_core.model.group import BASE
from coft_core.model.joint import JointForwards
from coft_core.model.language_model import LanguageModel
from coft_core.model.load import DEMO, load_model
from coft_core.model.loading import LoadingPhase, LoadingProgress, Needs
from coft_core.model.memory_fit import fit_is_known, fit_of
from coft_core.model.noise import model_noise
from coft_core.model.packed import weights_text
from coft_core.model.served import ServedModel
from coft_core.model.served_engine import ServedEngine, load_served
from coft_core.policies.base import Policy
from coft_core.scorers.base import EMBEDDED, ToxicityScorer, load_scorer
from coft_core.text.rendering import moment_of
from coft_core.text.sentinel import default_sentence

TOLD_BYTES = 10**9
"""Weights from which on a terminal tells what a model needs: it takes a while until it is loaded."""


class Loads:
    """The phases of models that are being loaded; any number of people may watch the same one."""

    def __init__(self) -> None:
        self._phases: dict[str, LoadingPhase] = {}
        self._changed = Condition()
        self.needs: dict[str, Needs] = {}
        """What models will need that are being loaded, as soon as it is known."""

    def teller(self, name: str) -> LoadingProgress:
        """What is called when a phase of a model's loading begins."""

        def tell(told: LoadingPhase | Needs) -> None:
            if isinstance(told, Needs):
                self.needs[name] = told
                return
            with self._changed:
                self._phases[name] = told
                self._changed.notify_all()

        return tell

    def watch(self, name: str, load: Callable[[], object]) -> Iterator[LoadingPhase]:
        """Load a model in a thread of its own, and tell of the phases meanwhile."""
        with ThreadPoolExecutor(1, thread_name_prefix="load-model") as thread:
            loaded: Future[object] = thread.submit(load)
            loaded.add_done_callback(self._wake)
            seen: LoadingPhase | None = None
            while not loaded.done():
                if (phase := self._next(name, seen, loaded)) is not None and not loaded.done():
                    yield phase
                seen = phase
        loaded.result()

    def done(self, name: str) -> None:
        """Forget a model's phase, once it is loaded or cannot be."""
        with self._changed:
            self._phases.pop(name, None)
            self.needs.pop(name, None)

    def _next(self, name: str, seen: LoadingPhase | None, loaded: Future[object]) -> LoadingPhase | None:
        """Wait until the phase is another one than was seen, or loading has ended."""
        with self._changed:
            self._changed.wait_for(lambda: loaded.done() or self._phases.get(name) is not seen)
            return self._phases.get(name)

    def _wake(self, _: Future[object]) -> None:
        with self._changed:
            self._changed.notify_all()


def where_it_runs(places: tuple[str, ...], quantization: str) -> str:
    """One line on where a model runs."""
    if "server" in places:
        return "Ready on a server"
    accelerators = sum(not place.startswith(("cpu", "disk")) for place in places)
    parts = [] if not accelerators else ["the GPU" if accelerators == 1 else f"{accelerators} GPUs"]
    processes = sum(place.startswith("cpu") for place in places)
    if processes:
        alone = "this computer" if not parts else "the processor"
        parts.append(alone if processes == 1 else f"{processes} processes")
    if "disk" in places:
        parts.append("the disk")
    together = " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts or ["this computer"])
    return f"Ready on {together}{'' if quantization == 'none' else f', {quantization}'}"


class ModelHost:
    """Loads each model once and lets one thread at a time run it."""

    def __init__(
        self,
        device: str = "auto",
        dtype: str = "auto",
        capacity: int = 2,
        loader: Callable[..., LanguageModel] = load_model,
        options: Mapping[str, object] | None = None,
        faster_steps: Literal["on", "off"] = "off",
        budget: MemoryBudget | None = None,
        offered: OfferedModels | None = None,
        served: Mapping[str, ServedModel] | None = None,
    ) -> None:
        """Remember how to load; nothing is loaded yet."""
        self._served = served or {}
        self._faster_steps = faster_steps
        self._offered = offered or OfferedModels("", self._served)
        self._options, self._loads = dict(options or {}), Loads()
        self._device, self._dtype = device, dtype
        self._capacity = capacity
        self._loader = loader
        self._models: LRUCache[str, LanguageModel] = LRUCache(capacity)
        self._further: LRUCache[str, LanguageModel] = LRUCache(capacity)
        self._scorers: dict[str, ToxicityScorer] = {}
        self._loading: WeakValueDictionary[str, Lock] = WeakValueDictionary()
        self._lock = Lock()
        self._holders: list[Callable[[LanguageModel], None]] = []
        self._turns = Turns()
        self.turn = self._turns.turn
        """Holds the processor in a block; others wait their turn, and come in the order of asking."""
        self.give_way = self._turns.give_way
        """Lets others go first who wait for their turn; long work that holds one calls it between its batches."""
        self.aside = self._turns.aside
        """Gives the holder's turn up in a block, while others compute for it, and takes one again at its end."""
        self.memory = DeviceMemory(self._turns, budget or MemoryBudget())
        """The memory that all work on the models shares; it is taken before a turn, never while holding one."""
        self.forwards = JointForwards(self.turn)
        """Where rollouts that are stepped at the same time share forwards; each forward takes a turn of its own."""

    @classmethod
    def wired(cls, services: Services) -> ModelHost:
        """As the settings say."""
        return cls.of(services, services.settings.faster_steps)

    @classmethod
    def of(cls, services: Services, faster_steps: Literal["on", "off"]) -> ModelHost:
        """As the settings say, but for how steps are computed."""
        # Commands print tables and JSON; the library's progress bars would run through them.
        disable_progress_bar()
        settings = services.settings
        return cls(
            settings.device,
            settings.dtype,
            loader=services.loader or load_model,
            options=settings.placement,
            faster_steps=faster_steps,
            budget=MemoryBudget(settings.kv_memory_mb),
            offered=OfferedModels(settings.models, settings.served_models),
            served=settings.served_models,
        )

    def get(self, name: str) -> LanguageModel:
        """The model of this name, loaded if need be."""
        return self._held(name, self._models)

    def loading(self, name: str) -> Iterator[LoadingPhase]:
        """Load the model of this name if need be, and tell of each phase as it begins."""
        if self.loaded(name) is None:
            yield from self._loads.watch(name, lambda: self.get(name))

    def needs(self, name: str) -> Needs | None:
        """What a model will need that is being loaded on the processor; None where that is not known yet."""
        return self._loads.needs.get(name)

    def further(self, policy: Policy, model: LanguageModel) -> dict[str, LanguageModel]:
        """The models that a policy runs beside the audited one, by the name that it has for them."""
        models = {role: self.loaded(name) or self._held(name, self._further) for role, name in policy.models.items()}
        return check_models(policy, model, models)

    def scorers(self, policy: Policy, model: LanguageModel) -> dict[str, ToxicityScorer]:
        """The toxicity scorers that a policy asks, by name; each is loaded once."""
        return {name: self.scorer_on(name, str(model.device)) for name in set(policy.scorers.values())}

    def scorer(self, name: str, beside: str) -> ToxicityScorer:
        """A scorer of texts by its name, loaded once, on the device of a model by its own."""
        return self.scorer_on(name, str(self.get(beside).device))

    def scorer_on(self, name: str, device: str) -> ToxicityScorer:
        """A scorer of texts by its name, loaded once, on a device."""
        if name != EMBEDDED:
            self._offered.require(name)
        with self._alone(f"scorer {name}"):
            if name not in self._scorers:
                self._scorers[name] = load_scorer(name, device)
        return self._scorers[name]

    def _alone(self, name: str) -> Lock:
        """What one thread at a time holds that loads by a name; it is forgotten when nobody holds it or waits."""
        with self._lock:
            return self._loading.setdefault(name, Lock())

    def _held(self, name: str, where: LRUCache[str, LanguageModel]) -> LanguageModel:
        self._offered.require(name)
        # Loading takes minutes for a large model; whoever uses another one must not wait for it.
        with self._alone(name):
            with self._lock:
                model = where.get(name)
            if model is None:
                model = self._load(name, where)
                self._make_room(where)
            with self._lock:
                where[name] = model
        return model

    def _load(self, name: str, where: LRUCache[str, LanguageModel]) -> LanguageModel:
        told = self._loads.teller(name)

        def tell(begun: LoadingPhase | Needs) -> None:
            # Until its weights are read a model may turn out not to be there; nobody else's goes for such a name. Then
            # what has to go goes first, since two large models may not fit beside each other.
            if begun is LoadingPhase.WEIGHTS:
                self._make_room(where)
            if isinstance(begun, Needs) and begun.weight_bytes >= TOLD_BYTES and sys.stderr.isatty():
                print(f"{name} is being loaded. {begun.text}", file=sys.stderr)
            told(begun)

        try:
            if (served := self._served.get(name)) is not None:
                return load_served(served, progress=tell)
            model = self._loader(name, device=self._device, dtype=self._dtype, progress=tell, **self._options)
            if self._faster_steps == "on":
                tell(LoadingPhase.WARM_UP)
                prepare_model(model)
            return model
        finally:
            self._loads.done(name)

    def before_leaving(self, let_go: Callable[[LanguageModel], None]) -> None:
        """Call something for each model that makes room for another, so that nothing keeps its weights in memory."""
        self._holders.append(let_go)

    def _make_room(self, where: LRUCache[str, LanguageModel]) -> None:
        with self._lock:
            leaving = [where.popitem()[1] for _ in range(len(where) - self._capacity + 1)]
        if not leaving:
            return
        while leaving:
            model = leaving.pop()
            for let_go in self._holders:
                let_go(model)
        # A model's parts refer to each other; without this it would stay until a collection happens to come.
        del model
        free_unused()

    def loaded(self, name: str) -> LanguageModel | None:
        """The model of this name if it is loaded already; nothing is loaded."""
        with self._lock:
            return self._models.get(name)

    def peek(self, name: str) -> LanguageModel | None:
        """The model of this name if it is loaded, in whatever role; it is not taken for used by that."""
        with self._lock:
            holding = next((where for where in (self._models, self._further) if name in where), None)
            return None if holding is None else Cache.__getitem__(holding, name)

    def describe(self, name: str) -> ModelView:
        """A model as the pages name it."""
        model = self.get(name)
        return ModelView(
            name=name,
            label=label_of(model),
            note=where_it_runs(model.places, model.quantization),
            context_length=model.context_length,
            sentinel=default_sentence(model.tokenizer),
            details=self._details(model),
        )

    def _details(self, model: LanguageModel) -> str:
        """How keys and values are kept; the first time the model runs a few tokens for that."""
        with nullcontext() if fit_is_known(model) else self.turn():
            fit = fit_of(model)
        kept = KeptMemory(BASE, fit.kind, fit.reason, 0, fit.joins)
        noise = f"Log-probabilities agree within {model_noise(model).text}."
        if isinstance(engine := model.engine, ServedEngine):
            return f"{_prompts(model)}{engine.note} {noise}"
        steps = f"Computes in {model.dtype_name}{_steps_note(model)}."
        return f"{_prompts(model)}{steps} Keys and values: {kept.text}. {noise}"


def _prompts(model: LanguageModel) -> str:
    """How prompts are put before a model that has a chat template; empty for others."""
    if not model.tokenizer.chat_template:
        return ""
    dated = ", which prints the date" if moment_of(model.rendering_label) else ""
    return f"Prompts go through its chat template{dated}. " if model.chat else "Prompts are plain text. "


def _steps_note(model: LanguageModel) -> str:
    """How steps run, where that was looked into, and in which form a CPU holds the weights."""
    looked_into = model.engine is not None or path_of(model) is not NOT_PREPARED
    said = f"steps {path_text(model)}" if looked_into else weights_text(model)
    return f", {said}" if said else ""


def label_of(model: LanguageModel) -> str:
    """Short label with size: ``"demo · 3.6M, embedded"``."""
    count = model.parameter_count
    size = f"{count / 1e9:.1f}B" if count >= 1e9 else f"{count / 1e6:.1f}M"
    name = model.name if "/" not in model.name else Path(model.name).name
    if not count:
        return name
    return f"{name} · {size}" + (", embedded" if model.name == DEMO else "")
