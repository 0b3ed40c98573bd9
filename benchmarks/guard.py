"""Fails on a gross regression of speed: ratios measured side by side here, against those that were recorded.

    make bench-guard

Ratios and not times, because machines differ; half of what was recorded still passes, because they are noisy.
"""

from spo.runtime import library_env

library_env.set_library_env()  # as the command line does

import argparse
import sys

import torch

from parts import measure

ENV, HIDDEN = "HalfCheetah-v4", (64, 64)
RECORDED = {
    "eager to compiled update": 4.0,
    "stepping alone to a whole iteration": 0.53,
}
"""Measured with `make bench-guard` on two cores of an x86 processor with AVX-512; the higher the better."""
TOLERATED = 0.5
"""The share of a recorded ratio that is still accepted."""


def ratios() -> dict[str, float]:
    parts = measure(ENV, HIDDEN)
    return {
        "eager to compiled update": parts["update, eager"] / parts["update, compiled"],
        "stepping alone to a whole iteration": parts["stepping alone"] / parts["iteration, compiled"],
    }


def main() -> int:
    torch.set_num_threads(1)
    found = ratios()
    print(f"{ENV}, policy {'-'.join(map(str, HIDDEN))}, one thread: time of the first in times of the second")
    for name, recorded in RECORDED.items():
        lowest = TOLERATED * recorded
        verdict = "ok" if found[name] >= lowest else "a regression"
        print(f"  {name:36} {found[name]:5.2f}  recorded {recorded:.2f}, accepted from {lowest:.2f}: {verdict}")
    return int(any(found[name] < TOLERATED * recorded for name, recorded in RECORDED.items()))


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    sys.exit(main())
