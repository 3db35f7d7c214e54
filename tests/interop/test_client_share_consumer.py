"""Our consumer of share groups against Apache Kafka 4.3 and against Moldau."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from moldau import Producer
from moldau.client.share_consumer import AsyncShareConsumer
from moldau.client.sharing.fetching import AcknowledgeType
from moldau.client.topology import TopicPartition
from tests.interop.test_client_consumer import bootstrap, create_topic, kafka, moldau, run
from tests.support.clients import TIMEOUT_S
from tests.support.node import unique_name

__all__ = ["bootstrap", "kafka", "moldau"]
pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("beside kafka")]


def share_group(bootstrap: str) -> str:
    """The name of one that will read from the beginning."""
    name = unique_name("share")
    entry = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.GROUP, name, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": bootstrap})
    (altered,) = admin.incremental_alter_configs([resource]).values()
    altered.result(TIMEOUT_S)
    return name


def write(bootstrap: str, topic: str, values: range) -> None:
    with Producer(bootstrap_servers=bootstrap) as producer:
        producer.send_batch(topic, [b"%d" % number for number in values])


def consumer(bootstrap: str, group: str, **options: Any) -> AsyncShareConsumer:
    return AsyncShareConsumer(
        bootstrap_servers=bootstrap, group_id=group, value_deserializer="json", **options
    )


def test_members_share_out_records(bootstrap: str) -> None:
    topic, group = create_topic(bootstrap, 2), share_group(bootstrap)
    write(bootstrap, topic, range(300))
    found: Counter[int] = Counter()

    async def work(share: AsyncShareConsumer) -> int:
        count = 0
        while found.total() < 300:
            for record in await share.poll(0.2):
                assert record.delivery_count == 1
                found[record.value] += 1
                count += 1
        return count

    async def main() -> None:
        async with (
            consumer(bootstrap, group, max_poll_records=10) as one,
            consumer(bootstrap, group, max_poll_records=10) as two,
        ):
            one.subscribe([topic])
            two.subscribe([topic])
            await asyncio.gather(work(one), work(two))
        async with consumer(bootstrap, group) as late:  # all was accepted
            late.subscribe([topic])
            assert await late.poll(1) == []

    run(main)
    assert found == Counter(range(300))


def test_records_are_acknowledged_one_by_one(bootstrap: str) -> None:
    topic, group = create_topic(bootstrap), share_group(bootstrap)
    write(bootstrap, topic, range(10))
    place = TopicPartition(topic, 0)

    async def main() -> None:
        async with consumer(bootstrap, group, share_acknowledgement_mode="explicit") as share:
            share.subscribe([topic])
            records = await share.poll(TIMEOUT_S)
            assert len(records) == 10
            with pytest.raises(ValueError, match="have not been acknowledged"):
                await share.poll(0)
            for record in records:
                kind = (AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT)[
                    record.value % 3
                ]
                share.acknowledge(record, kind)
            with pytest.raises(ValueError, match="not to be acknowledged"):
                share.acknowledge(records[0])
            assert await share.commit() == {place: None}
            again = await share.poll(TIMEOUT_S)
            assert [(record.value, record.delivery_count) for record in again] == [(1, 2), (4, 2), (7, 2)]
            share.acknowledge(again[0])
            with pytest.raises(ValueError, match="have not been acknowledged"):
                await share.poll(0)
        # What was not acknowledged is released at the end of the session.
        async with consumer(bootstrap, group) as share:
            share.subscribe([topic])
            last = await share.poll(TIMEOUT_S)
            assert [record.value for record in last] == [4, 7]
            assert await share.commit() == {place: None}
            assert await share.commit() == {}

    run(main)


def test_what_cannot_be_read_is_rejected(bootstrap: str) -> None:
    topic, group = create_topic(bootstrap), share_group(bootstrap)
    with Producer(bootstrap_servers=bootstrap) as producer:
        for value in (b"1", b"no json", b"3"):
            producer.send(topic, value)

    async def main() -> None:
        async with consumer(bootstrap, group) as share:
            share.subscribe([topic])
            found = []
            while len(found) < 2:
                found += [record.value for record in await share.poll(TIMEOUT_S)]
            assert found == [1, 3]
            await share.commit()
            assert await share.poll(0.5) == []

    run(main)
