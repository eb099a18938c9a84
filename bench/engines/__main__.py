"""Engines: agreement with transformers, and speed over a plain loop of their own; ratios are taken within one run.

    python -m bench.engines --parts llama     what is needed: requirements-llama.txt
    python -m bench.engines --parts bounds
    python -m bench.engines --parts quantized what is needed: 20 GB of disk, 15 minutes
    python -m bench.engines --parts served    what is needed: llama-server or vllm (PATH, COFT_LLAMA_SERVER, COFT_VLLM)

Each part prints one JSON line.
"""

from __future__ import annotations

import argparse
import importlib
import json

PARTS = ("llama", "bounds", "quantized", "served")


def main() -> None:
    """Run the parts that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--quick", action="store_true", help="few chains and rounds, to see that it runs")
    options = parser.parse_args()
    for part in options.parts:
        found = importlib.import_module(f"bench.engines.{part}").measured(options.quick)
        print(json.dumps({"part": part, **found}), flush=True)


if __name__ == "__main__":
    main()
