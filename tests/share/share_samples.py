"""What tests of share partitions need of the world."""

from __future__ import annotations

from moldau.config.broker import BrokerConfig
from moldau.records.batch import BatchHeader, parse_header
from moldau.records.builder import build_batch
from moldau.records.record import Record

_PROPERTIES = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.voters": "1@localhost:9093",
    "listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
    "controller.listener.names": "CONTROLLER",
}


def broker_config(**properties: object) -> BrokerConfig:
    given = {name.replace("_", "."): str(value) for name, value in properties.items()}
    return BrokerConfig.parse({**_PROPERTIES, **given})


def header(first: int, last: int) -> BatchHeader:
    """Of a batch with records from the first offset to the last."""
    one = parse_header(build_batch([Record(0, 0, None, b"")]))
    return one._replace(base_offset=first, last_offset_delta=last - first, record_count=last - first + 1)
