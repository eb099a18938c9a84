"""The sole owner of loaded models and of live rollouts."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock

from app.services.turns import Turns
from app.services.views import ModelView, Step
from coft_core.decode import Rollout
from coft_core.engine.load import DEMO, load_model
from coft_core.engine.model import LanguageModel
from coft_core.masking.sentinel import resolve_sentinel
from coft_core.needed_models import check_models
from coft_core.policies.base import NeedsModels, NeedsScorers, Policy
from coft_core.scorers.base import ToxicityScorer, load_scorer


class ModelHost:
    """Loads each model once and lets one thread at a time run it."""

    def __init__(
        self,
        device: str = "auto",
        dtype: str = "auto",
        capacity: int = 2,
        loader: Callable[..., LanguageModel] = load_model,
    ) -> None:
        """Remember how to load; nothing is loaded yet.

        Args:
            device: Device for every model.
            dtype: Floating type for every model.
            capacity: Models held at once; the one unused for longest goes first.
            loader: What loads a model; tests give their own.
        """
        self._device, self._dtype = device, dtype
        self._capacity = capacity
        self._loader = loader
        self._models: OrderedDict[str, LanguageModel] = OrderedDict()
        self._further: OrderedDict[str, LanguageModel] = OrderedDict()
        self._scorers: dict[str, ToxicityScorer] = {}
        self._loading: defaultdict[str, Lock] = defaultdict(Lock)
        self._lock = Lock()
        self._turns = Turns()

    def get(self, name: str) -> LanguageModel:
        """The model of this name, loaded if need be.

        Raises:
            ModelLoadError: It cannot be loaded.
        """
        return self._held(name, self._models)

    def further(self, policy: Policy, model: LanguageModel) -> dict[str, LanguageModel]:
        """The models that a policy runs beside the audited one, by the name that it has for them.

        They are held apart, so that a policy with an expert and an anti-expert does not drive out what is audited.

        Raises:
            ModelLoadError: One cannot be loaded.
            InvalidInputError: One reads other tokens than the audited model.
        """
        names = policy.models if isinstance(policy, NeedsModels) else {}
        found = {role: self.loaded(name) or self._held(name, self._further) for role, name in names.items()}
        return check_models(policy, model, found)

    def scorers(self, policy: Policy, model: LanguageModel) -> dict[str, ToxicityScorer]:
        """The toxicity scorers that a policy asks, by name; each is loaded once.

        Raises:
            ModelLoadError: One cannot be loaded.
        """
        names = set(policy.scorers.values()) if isinstance(policy, NeedsScorers) else set()
        for name in names:
            with self._lock:
                loading = self._loading[f"scorer {name}"]
            with loading:
                if name not in self._scorers:
                    self._scorers[name] = load_scorer(name, str(model.device))
        return {name: self._scorers[name] for name in names}

    def _held(self, name: str, where: OrderedDict[str, LanguageModel]) -> LanguageModel:
        with self._lock:
            loading = self._loading[name]
        # Loading takes minutes for a large model; whoever uses another one must not wait for it.
        with loading:
            with self._lock:
                model = where.get(name)
            if model is None:
                model = self._loader(name, device=self._device, dtype=self._dtype)
            with self._lock:
                where[name] = model
                where.move_to_end(name)
                while len(where) > self._capacity:
                    where.popitem(last=False)
        return model

    def loaded(self, name: str) -> LanguageModel | None:
        """The model of this name if it is loaded already; nothing is loaded."""
        with self._lock:
            return self._models.get(name)

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Hold the processor; others wait their turn, and come in the order of asking."""
        with self._turns.turn():
            yield

    def give_way(self) -> None:
        """Let others go first who wait for their turn; long work that holds one calls this between its batches."""
        self._turns.give_way()

    def describe(self, name: str) -> ModelView:
        """A model as the pages name it.

        Raises:
            ModelLoadError: It cannot be loaded.
        """
        model = self.get(name)
        where = "Runs on the GPU" if model.device.type == "cuda" else "Runs on this computer"
        return ModelView(
            name=name,
            label=label_of(model),
            note=f"{where}, {model.dtype_name}",
            context_length=model.context_length,
            sentinel=resolve_sentinel(model.tokenizer)[0],
        )


class RolloutPool:
    """Rollouts kept between requests, one a branch; the one unused for longest is closed first."""

    def __init__(self, capacity: int) -> None:
        """Make an empty pool.

        Args:
            capacity: Rollouts whose key-value memory is kept.
        """
        self._capacity = capacity
        self._rollouts: OrderedDict[int, Rollout] = OrderedDict()
        self._lock = Lock()

    def take(self, branch_id: int) -> Rollout | None:
        """Take a rollout out of the pool, so that nobody else uses or closes it meanwhile."""
        with self._lock:
            return self._rollouts.pop(branch_id, None)

    def steps(self, branch_id: int) -> tuple[Step, ...] | None:
        """The chain of a branch whose rollout is kept and not in use at the moment."""
        with self._lock:
            rollout = self._rollouts.get(branch_id)
            return None if rollout is None else rollout.steps

    def put(self, branch_id: int, rollout: Rollout) -> None:
        """Put a rollout back."""
        with self._lock:
            self._rollouts[branch_id] = rollout
            surplus = len(self._rollouts) - self._capacity
            closing = [self._rollouts.popitem(last=False)[1] for _ in range(max(surplus, 0))]
        for rollout in closing:
            rollout.close()

    def drop(self, branch_ids: set[int]) -> None:
        """Close the rollouts of branches that are gone."""
        with self._lock:
            closing = [self._rollouts.pop(i) for i in branch_ids & self._rollouts.keys()]
        for rollout in closing:
            rollout.close()


def label_of(model: LanguageModel) -> str:
    """Short label with size: ``"demo · 3.6M, embedded"``."""
    count = model.parameter_count
    size = f"{count / 1e9:.1f}B" if count >= 1e9 else f"{count / 1e6:.1f}M"
    name = model.name if "/" not in model.name else Path(model.name).name
    return f"{name} · {size}" + (", embedded" if model.name == DEMO else "")
