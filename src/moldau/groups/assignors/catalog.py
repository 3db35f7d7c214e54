"""The assignors by their names, and by the classes that Kafka's options may call them by."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from moldau.groups.assignors.assignment import Assignor
from moldau.groups.assignors.range import assign_ranges
from moldau.groups.assignors.uniform import assign_uniformly

UNIFORM = "uniform"
RANGE = "range"

ASSIGNORS: Mapping[str, Assignor] = {UNIFORM: assign_uniformly, RANGE: assign_ranges}

_CLASSES = {
    "org.apache.kafka.coordinator.group.assignor.UniformAssignor": UNIFORM,
    "org.apache.kafka.coordinator.group.assignor.RangeAssignor": RANGE,
}


@lru_cache(maxsize=16)
def offered(configured: tuple[str, ...]) -> tuple[str, ...]:
    """The names of those that the option lists and that there are; the first is the default."""
    names = (_CLASSES.get(name, name) for name in configured)
    return tuple(dict.fromkeys(name for name in names if name in ASSIGNORS)) or (UNIFORM,)
