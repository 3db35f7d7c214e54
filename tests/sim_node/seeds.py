"""Which seeds the random runs take: a few in the quick run, as many as asked for by MOLDAU_SEEDS, or the one
in MOLDAU_SEED, which a failure names."""

from __future__ import annotations

import os


def seeds(quick: int) -> list[int]:
    if one := os.environ.get("MOLDAU_SEED"):
        return [int(one)]
    return list(range(int(os.environ.get("MOLDAU_SEEDS") or quick)))
