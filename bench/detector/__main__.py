"""Measures the span detector. Run it with `python -m bench.detector --data DIR`.

DIR (or `COFT_DATA_DIR`) has the folders `ner`, `crows_pairs` and `wikitext2`. It takes a few minutes on one core. The
first table is the README's; the last line of the output is a JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

from bench.detector.measure import measure_detector
from bench.detector.tables import overview, tables
from coft_core.assets import assets_path


def main(values: list[str] | None = None) -> None:
    """Measures as the command line says."""
    parser = argparse.ArgumentParser(prog="bench.detector", description="Measure the span detector.")
    data = os.environ.get("COFT_DATA_DIR")
    parser.add_argument("--data", type=Path, default=data, required=data is None, help="folder of the corpora")
    parser.add_argument(
        "--pipeline", default=str(assets_path("pipelines", "en_coft_ner")), help="package or folder; the embedded one"
    )
    options = parser.parse_args(values)
    measured = measure_detector(options.data, options.pipeline)
    print(overview(measured), tables(measured), sep="\n\n")
    print(json.dumps(measured))


if __name__ == "__main__":
    main()
