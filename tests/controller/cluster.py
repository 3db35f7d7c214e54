"""Images and configurations that the tests of decisions share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from moldau.config.broker import BrokerConfig
from moldau.controller.decision import Decision
from moldau.metadata.delta import apply_records
from moldau.metadata.features import SUPPORTED_FEATURES, bootstrap_records
from moldau.metadata.framing import decode_record, encode_record
from moldau.metadata.image import ClusterImage
from moldau.metadata.records import BrokerFeature, RegisterBrokerRecord
from moldau.wire.ids import Uuid


def config(**options: str) -> BrokerConfig:
    properties = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
        "advertised.listeners": "PLAINTEXT://127.0.0.1:9092",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": "1@127.0.0.1:9093",
        "log.dirs": "/data",
        **{name.replace("_", "."): value for name, value in options.items()},
    }
    return BrokerConfig.parse(properties)


CONFIG = config()


def directory(broker_id: int) -> Uuid:
    return Uuid(b"dir-" + broker_id.to_bytes(12, "big"))


def cluster(
    *brokers: int, racks: dict[int, str] | None = None, fenced: Sequence[int] = (), elr: bool = True
) -> ClusterImage:
    """A new cluster with these brokers; the epoch of each is its id."""
    start = [record.message for record in bootstrap_records()]
    if not elr:
        start = [
            message for message in start if getattr(message, "name", "") != "eligible.leader.replicas.version"
        ]
    features = [
        BrokerFeature(name=name, min_supported_version=low, max_supported_version=high)
        for name, (low, high) in SUPPORTED_FEATURES.items()
    ]
    for broker_id in brokers:
        start.append(
            RegisterBrokerRecord(
                broker_id=broker_id,
                broker_epoch=broker_id,
                incarnation_id=Uuid(bytes([broker_id]) * 16),
                features=features,
                rack=(racks or {}).get(broker_id),
                fenced=broker_id in fenced,
                log_dirs=[directory(broker_id)],
            )
        )
    image, _ = apply_records(ClusterImage(offset=99, epoch=1, timestamp_ms=0), start)
    return image


def carried_out(image: ClusterImage, decision: Decision[Any]) -> ClusterImage:
    """The image after the decision. What a restart reads of the records has to give the same."""
    after, _ = apply_records(image, [record.message for record in decision.records])
    stored = [decode_record(encode_record(*record)).message for record in decision.records]
    assert apply_records(image, stored)[0] == after
    return after
