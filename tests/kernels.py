"""Repeats tests that compare numbers under the arithmetic of other processors: ``python -m tests.kernels``.

OpenBLAS, torch, oneDNN and MKL choose their kernels by the processor. Here they are told to take those of older and
newer ones, as far as this processor can execute them. Kernels that it takes by itself are left to the usual run.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

TESTS = (
    "tests/app/evaluate/test_coefficients.py",
    "tests/contracts/test_contracts.py",
    "tests/coft_core/conformal",
    "tests/coft_core/decode/test_decode.py",
    "tests/coft_core/model/test_compiled.py",
    "tests/coft_core/model/test_int_weights.py",
    "tests/coft_core/suites/test_discrim_eval.py",
    "tests/coft_core/suites/test_statistics.py",
)


@dataclass(frozen=True, slots=True)
class Kernels:
    """Kernels of one generation of processors."""

    openblas: str
    torch: str
    onednn: str
    mkl: str
    flags: frozenset[str]

    @property
    def environment(self) -> dict[str, str]:
        """The variables that choose them."""
        return {
            "OPENBLAS_CORETYPE": self.openblas,
            "ATEN_CPU_CAPABILITY": self.torch,
            "ONEDNN_MAX_CPU_ISA": self.onednn,
            "MKL_CBWR": self.mkl,
        }


AVX2 = frozenset({"avx", "avx2", "fma"})
KERNELS = (
    Kernels("Nehalem", "default", "SSE41", "COMPATIBLE", frozenset({"sse4_2"})),
    Kernels("Sandybridge", "default", "AVX", "AVX", frozenset({"avx"})),
    Kernels("Haswell", "avx2", "AVX2", "AVX2", AVX2),
    Kernels(
        "SkylakeX", "avx512", "AVX512_CORE", "AVX512",
        AVX2 | {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512cd"},
    ),
)  # fmt: skip

USED = """
import json, numpy, scipy.linalg, threadpoolctl, torch
blas = {pool["architecture"] for pool in threadpoolctl.threadpool_info() if pool["internal_api"] == "openblas"}
print(json.dumps([sorted(blas), torch.backends.cpu.get_cpu_capability()]))
"""


def environment(kernels: Kernels | None) -> dict[str, str]:
    """This environment with some kernels, or with those that the processor takes by itself."""
    chosen = {name for each in KERNELS for name in each.environment}
    own = {name: value for name, value in os.environ.items() if name not in chosen}
    return {**own, "OMP_NUM_THREADS": "1", **(kernels.environment if kernels else {})}


def used(kernels: Kernels | None) -> list[object]:
    """What OpenBLAS and torch really use."""
    told = subprocess.run(
        [sys.executable, "-c", USED], env=environment(kernels), check=True, capture_output=True, text=True
    )
    found: list[object] = json.loads(told.stdout)
    return found


def main() -> int:
    """Run the tests under each; their exit code, or 1 where kernels are not those that were asked for."""
    can = set(Path("/proc/cpuinfo").read_text("utf-8").partition("flags")[2].partition("\n")[0].split())
    usual = used(None)
    print(f"usual run: {usual}", flush=True)
    failed = 0
    for kernels in KERNELS:
        if not kernels.flags <= can:
            print(f"{kernels.openblas}: this processor cannot execute its kernels", flush=True)
        elif (now := used(kernels)) == usual:
            print(f"{kernels.openblas}: as in the usual run", flush=True)
        elif now[0] != [kernels.openblas]:
            print(f"{kernels.openblas}: OpenBLAS took {now[0]} in its place", flush=True)
            failed = 1
        else:
            print(f"{kernels.openblas}: {now}", flush=True)
            line = [sys.executable, "-m", "pytest", "-q", *TESTS, *sys.argv[1:]]
            failed |= subprocess.run(line, env=environment(kernels), check=False).returncode
    return failed


if __name__ == "__main__":
    sys.exit(main())
