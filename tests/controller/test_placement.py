"""Replicas are spread: over brokers, over racks, and never twice on one broker."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from cluster import cluster, directory
from hypothesis import given
from hypothesis import strategies as st

from moldau.controller.placement import place_replicas
from moldau.metadata.delta import apply_records
from moldau.metadata.records import BrokerRegistrationChangeRecord
from moldau.wire.errors import KafkaError

RACKS = st.dictionaries(st.integers(0, 11), st.sampled_from(["a", "b", "c"]), min_size=1)


@given(RACKS, st.data())
def test_replicas_are_on_different_brokers_and_the_leader_lives(
    racks: dict[int, str], data: st.DataObject
) -> None:
    fenced = data.draw(st.lists(st.sampled_from(sorted(racks)), unique=True, max_size=len(racks) - 1))
    factor = data.draw(st.integers(1, len(racks)))
    partitions = data.draw(st.integers(1, 40))
    image = cluster(*racks, racks=racks, fenced=fenced)
    placed = place_replicas(image, partitions, factor, Random(data.draw(st.integers(0, 99))))
    assert len(placed) == partitions
    for replicas in placed:
        assert len(set(replicas)) == factor
        assert replicas[0] not in fenced
        # As many racks as there are, or as replicas.
        assert len({racks[broker] for broker in replicas}) == min(factor, len(set(racks.values())))


@given(st.integers(1, 9), st.integers(0, 99))
def test_leaders_are_spread_evenly(brokers: int, seed: int) -> None:
    placed = place_replicas(cluster(*range(brokers)), brokers * 5, 1, Random(seed))
    assert set(Counter(replicas[0] for replicas in placed).values()) == {5}


def test_the_same_chance_places_the_same() -> None:
    image = cluster(1, 2, 3, 4)
    assert place_replicas(image, 9, 3, Random(8)) == place_replicas(image, 9, 3, Random(8))


def test_a_broker_with_all_its_directories_cordoned_takes_no_replica() -> None:
    cordon = BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=2, cordoned_log_dirs=[directory(2)])
    image, _ = apply_records(cluster(1, 2), [cordon])
    assert place_replicas(image, 3, 1, Random(0)) == [[1], [1], [1]]
    with pytest.raises(KafkaError, match="only 1 broker"):
        place_replicas(image, 1, 2, Random(0))
