"""Published files of benchmarks: what is there, and where the rest comes from."""

from app.shared.wiring import Feature

FEATURE = Feature(__name__, {"data": "download the published files of benchmarks"})
