"""Apache Kafka and Moldau, started side by side with the same options, to be asked the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from bench.kafka import KafkaServer
from tests.support.beside import Pair, Peer
from tests.support.node import MoldauNode


@contextmanager
def kafka_and_moldau(root: Path, options: Mapping[str, str]) -> Iterator[tuple[Pair, tuple[Path, Path]]]:
    """Both, and where their data is."""
    kafka = KafkaServer(root / "kafka", properties=options)
    moldau = MoldauNode(root / "moldau", options)
    kafka.launch()
    try:
        with moldau:
            kafka.wait_ready()
            with Pair(Peer(kafka.bootstrap, []), Peer(moldau.bootstrap, [])) as pair:
                yield pair, (kafka.data_dir, moldau.data_dir)
    finally:
        kafka.kill()
