"""What is being done while a model is loaded, for whoever waits for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Condition

from coft_core.engine.loading import LoadingPhase, LoadingProgress


class Loads:
    """The phases of models that are being loaded; any number of people may watch the same one."""

    def __init__(self) -> None:
        """Nothing is being loaded."""
        self._phases: dict[str, LoadingPhase] = {}
        self._changed = Condition()

    def teller(self, name: str) -> LoadingProgress:
        """What is called when a phase of a model's loading begins."""

        def tell(phase: LoadingPhase) -> None:
            with self._changed:
                self._phases[name] = phase
                self._changed.notify_all()

        return tell

    def watch(self, name: str, load: Callable[[], object]) -> Iterator[LoadingPhase]:
        """Load a model in a thread of its own, and tell of the phases meanwhile.

        Args:
            name: The model's name.
            load: What loads it, or waits for somebody else who does.

        Yields:
            Each phase as it begins; a phase that lasts no longer than it takes to ask may be left out.

        Raises:
            ModelLoadError: Whatever ``load`` raises.
        """
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

    def _next(self, name: str, seen: LoadingPhase | None, loaded: Future[object]) -> LoadingPhase | None:
        """Wait until the phase is another one than was seen, or loading has ended."""
        with self._changed:
            self._changed.wait_for(lambda: loaded.done() or self._phases.get(name) is not seen)
            return self._phases.get(name)

    def _wake(self, _: Future[object]) -> None:
        with self._changed:
            self._changed.notify_all()


def where_it_runs(places: tuple[str, ...], quantization: str, dtype: str) -> str:
    """One line on where and how a model runs.

    Args:
        places: The devices that hold its weights, such as ``("cuda:0", "cuda:1", "disk")``.
        quantization: ``"none"``, ``"4-bit"`` or another form of its weights.
        dtype: The type of its weights, or of what is computed with them.

    Returns:
        For example ``"Runs on 2 GPUs, 4-bit"`` or ``"Runs on this computer, float32"``.
    """
    accelerators = sum(not place.startswith(("cpu", "disk")) for place in places)
    parts = [] if not accelerators else ["the GPU" if accelerators == 1 else f"{accelerators} GPUs"]
    processes = sum(place.startswith("cpu") for place in places)
    if processes:
        alone = "this computer" if not parts else "the processor"
        parts.append(alone if processes == 1 else f"{processes} processes")
    if "disk" in places:
        parts.append("the disk")
    together = " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts or ["this computer"])
    return f"Runs on {together}, {dtype if quantization == 'none' else quantization}"
