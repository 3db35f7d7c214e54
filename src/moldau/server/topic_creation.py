"""Topics that are created because someone asked for them, among them those that the broker keeps for itself.

Whoever asks is not kept waiting: the answer is that the topic is not there, and clients ask again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from moldau.config.broker import BrokerConfig
from moldau.controller.topics import decide_create_topics
from moldau.server.services import Services
from moldau.wire.errors import ErrorCode
from moldau.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest

log = logging.getLogger(__name__)


def creatable_topic(name: str, config: BrokerConfig) -> CreatableTopic:
    """A topic as it is created when nobody says how."""
    match name:
        case "__consumer_offsets":
            offsets = config.offsets
            return _topic(
                name,
                offsets.topic_num_partitions,
                offsets.topic_replication_factor,
                {
                    "cleanup.policy": "compact",
                    "compression.type": "producer",
                    "segment.bytes": str(offsets.topic_segment_bytes),
                },
            )
        case "__transaction_state":
            transactions = config.transactions
            return _topic(
                name,
                transactions.transaction_state_log_num_partitions,
                transactions.transaction_state_log_replication_factor,
                {
                    "cleanup.policy": "compact",
                    "compression.type": "uncompressed",
                    "min.insync.replicas": str(transactions.transaction_state_log_min_isr),
                    "segment.bytes": str(transactions.transaction_state_log_segment_bytes),
                    "unclean.leader.election.enable": "false",
                },
            )
        case "__share_group_state":
            share = config.share_coordinator
            return _topic(
                name,
                share.state_topic_num_partitions,
                share.state_topic_replication_factor,
                {
                    "cleanup.policy": "delete",
                    "compression.type": "producer",
                    "min.insync.replicas": str(share.state_topic_min_isr),
                    "retention.ms": "-1",
                    "segment.bytes": str(share.state_topic_segment_bytes),
                },
            )
    return _topic(name, config.node.num_partitions, config.node.default_replication_factor, {})


def create_in_background(services: Services, names: Iterable[str]) -> None:
    """A topic that is being created already is not created twice: the later attempt finds it there."""
    topics = [creatable_topic(name, services.config) for name in names]
    if topics:
        services.runtime.spawn(_create(services, topics), "auto topic creation")


async def _create(services: Services, topics: list[CreatableTopic]) -> None:
    request = CreateTopicsRequest(topics=topics)
    try:
        response = await services.controller.submit(
            lambda image: decide_create_topics(
                image, request, config=services.config, random=services.runtime.random
            )
        )
    except Exception:
        # Nobody waits for this task, so nobody else would tell.
        log.exception("Creating topics %s failed", [topic.name for topic in topics])
        return
    for result in response.topics:
        if result.error_code == ErrorCode.NONE:
            log.info("Created topic %s, which a client asked for", result.name)
        elif result.error_code != ErrorCode.TOPIC_ALREADY_EXISTS:
            # Clients ask several times a second, so this is no warning.
            log.debug("Topic %s was not created: %s", result.name, result.error_message)


def _topic(name: str, partitions: int, replication_factor: int, configs: Mapping[str, str]) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
    )
