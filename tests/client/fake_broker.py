"""A broker in memory, for tests of the client and the command: topics, batches, and any answer a test wants.

It runs on any runtime, real or simulated, and knows one node: itself. `overrides` replace its answers: called
with the request, they return a response, None to say nothing, or bytes to send as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from moldau.client.admin import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, ResourceType
from moldau.records.batch import iterate_headers, parse_header, stamp
from moldau.runtime.interfaces import Runtime, Stream
from moldau.wire.api import ApiKey, request_type
from moldau.wire.codec import decode, encode
from moldau.wire.errors import ErrorCode
from moldau.wire.headers import read_request_header, response_is_flexible
from moldau.wire.messages import (
    api_versions,
    create_partitions,
    create_topics,
    delete_topics,
    describe_configs,
    fetch,
    incremental_alter_configs,
    init_producer_id,
    list_offsets,
    metadata,
    produce,
)
from moldau.wire.schema import Message

APIS = (
    ApiKey.PRODUCE,
    ApiKey.FETCH,
    ApiKey.LIST_OFFSETS,
    ApiKey.METADATA,
    ApiKey.API_VERSIONS,
    ApiKey.CREATE_TOPICS,
    ApiKey.DELETE_TOPICS,
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.DESCRIBE_CONFIGS,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
)
Answer = Message | bytes | None


@dataclass
class FakeTopic:
    topic_id: bytes
    logs: list[bytearray]
    configs: dict[str, str] = field(default_factory=dict)

    def end_offset(self, partition: int) -> int:
        headers = [header for _, header in iterate_headers(self.logs[partition])]
        return headers[-1].next_offset if headers else 0


class FakeBroker:
    def __init__(self, runtime: Runtime, *, port: int = 9092, host: str = "127.0.0.1") -> None:
        self.listener = runtime.network.listen(host, port, self._on_accept)
        self.host, self.port = host, self.listener.port
        self.topics: dict[str, FakeTopic] = {}
        self.aborted: list[fetch.AbortedTransaction] = []
        self.requests: list[tuple[ApiKey, int, Any]] = []
        self.overrides: dict[ApiKey, Callable[[Any], Answer]] = {}
        self.versions_max: dict[ApiKey, int] = {}
        self.streams: list[Stream] = []
        self._flexible_from = {key: request_type(key).FLEXIBLE.first for key in APIS}

    def add_topic(self, name: str, partitions: int = 1) -> FakeTopic:
        topic_id = len(self.topics).to_bytes(15, "big") + b"\x07"
        topic = self.topics[name] = FakeTopic(topic_id, [bytearray() for _ in range(partitions)])
        return topic

    def serve(self, key: ApiKey, answer: Callable[[Any], Answer]) -> None:
        """One more API, or another answer."""
        self._flexible_from[key] = request_type(key).FLEXIBLE.first
        self.overrides[key] = answer

    def asked(self, key: ApiKey) -> list[Any]:
        return [message for asked, _, message in self.requests if asked is key]

    def close(self) -> None:
        self.listener.close()
        for stream in self.streams:
            stream.close()

    # The wire ----------------------------------------------------------------------------------------------

    def _on_accept(self, stream: Stream) -> None:
        received = bytearray()
        self.streams.append(stream)

        def on_readable() -> None:
            chunk = bytearray(1 << 16)
            while True:
                try:
                    count = stream.recv_into(chunk)
                except BlockingIOError:
                    break
                except OSError:
                    count = 0
                if not count:
                    stream.close()
                    return
                received.extend(chunk[:count])
            while len(received) >= 4 and len(received) >= 4 + int.from_bytes(received[:4], "big"):
                size = int.from_bytes(received[:4], "big")
                frame = bytes(received[4 : 4 + size])
                del received[: 4 + size]
                answer = self._on_frame(frame)
                if answer is not None:
                    stream.send([answer])

        stream.watch_readable(on_readable)

    def _on_frame(self, frame: bytes) -> bytes | None:
        header = read_request_header(frame, self._flexible_from)
        key, version = ApiKey(header.api_key), header.api_version
        if key is ApiKey.API_VERSIONS and version > self._version_max(key):
            self.requests.append((key, version, None))
            answer: Answer = api_versions.ApiVersionsResponse(
                error_code=ErrorCode.UNSUPPORTED_VERSION,
                api_keys=[api_versions.ApiVersion(api_key=key, max_version=self._version_max(key))],
            )
            version = 0
        else:
            message, end = decode(request_type(key), version, frame, header.body_position)
            assert end == len(frame)
            self.requests.append((key, version, message))
            override = self.overrides.get(key)
            answer = override(message) if override else self._answer(key, message)
        if answer is None or isinstance(answer, bytes):
            return answer
        out = bytearray(4) + header.correlation_id.to_bytes(4, "big")
        if response_is_flexible(key, version, version in type(answer).FLEXIBLE):
            out.append(0)
        encode(answer, version, out)
        out[:4] = (len(out) - 4).to_bytes(4, "big")
        return bytes(out)

    def _version_max(self, key: ApiKey) -> int:
        return self.versions_max.get(key, request_type(key).VERSIONS.last)

    # The answers -------------------------------------------------------------------------------------------

    def _answer(self, key: ApiKey, message: Any) -> Answer:
        answer: Answer = getattr(self, f"_{key.name.lower()}")(message)
        return answer

    def _api_versions(self, _: Any) -> Answer:
        return api_versions.ApiVersionsResponse(
            api_keys=[
                api_versions.ApiVersion(
                    api_key=key,
                    min_version=request_type(key).VERSIONS.first,
                    max_version=self._version_max(key),
                )
                for key in self._flexible_from
                if self._version_max(key) >= 0
            ]
        )

    def _metadata(self, request: metadata.MetadataRequest) -> Answer:
        names = (
            list(self.topics) if request.topics is None else [topic.name or "" for topic in request.topics]
        )
        if request.allow_auto_topic_creation and request.topics:
            for name in names:
                if name not in self.topics:
                    self.add_topic(name)
        return metadata.MetadataResponse(
            brokers=[metadata.MetadataResponseBroker(node_id=1, host=self.host, port=self.port)],
            cluster_id="fake",
            controller_id=1,
            topics=[self._topic_metadata(name) for name in names],
        )

    def _topic_metadata(self, name: str) -> metadata.MetadataResponseTopic:
        topic = self.topics.get(name)
        if topic is None:
            return metadata.MetadataResponseTopic(name=name, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        partitions = [
            metadata.MetadataResponsePartition(
                partition_index=index, leader_id=1, leader_epoch=0, replica_nodes=[1], isr_nodes=[1]
            )
            for index in range(len(topic.logs))
        ]
        return metadata.MetadataResponseTopic(name=name, topic_id=topic.topic_id, partitions=partitions)

    def _create_topics(self, request: create_topics.CreateTopicsRequest) -> Answer:
        results = []
        for topic in request.topics:
            result = create_topics.CreatableTopicResult(name=topic.name, configs=None)
            if topic.name in self.topics:
                result.error_code = ErrorCode.TOPIC_ALREADY_EXISTS
                result.error_message = f"Topic '{topic.name}' already exists."
            elif not request.validate_only:
                made = self.add_topic(topic.name, max(topic.num_partitions, 1))
                made.configs = {config.name: config.value or "" for config in topic.configs}
            results.append(result)
        return create_topics.CreateTopicsResponse(topics=results)

    def _delete_topics(self, request: delete_topics.DeleteTopicsRequest) -> Answer:
        names = [topic.name or "" for topic in request.topics] or request.topic_names
        results = []
        for name in names:
            known = self.topics.pop(name, None)
            code = ErrorCode.NONE if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            results.append(delete_topics.DeletableTopicResult(name=name, error_code=code))
        return delete_topics.DeleteTopicsResponse(responses=results)

    def _create_partitions(self, request: create_partitions.CreatePartitionsRequest) -> Answer:
        results = []
        for wanted in request.topics:
            logs = self.topics[wanted.name].logs
            result = create_partitions.CreatePartitionsTopicResult(name=wanted.name)
            if wanted.count <= len(logs):
                result.error_code = ErrorCode.INVALID_PARTITIONS
                result.error_message = f"The topic has {len(logs)} partitions."
            logs.extend(bytearray() for _ in range(wanted.count - len(logs)))
            results.append(result)
        return create_partitions.CreatePartitionsResponse(results=results)

    def _describe_configs(self, request: describe_configs.DescribeConfigsRequest) -> Answer:
        (resource,) = request.resources
        is_topic = resource.resource_type == ResourceType.TOPIC
        configs = [
            describe_configs.DescribeConfigsResourceResult(
                name=name, value=value, config_source=1, documentation=None
            )
            for name, value in (self.topics[resource.resource_name].configs if is_topic else {}).items()
        ]
        default = describe_configs.DescribeConfigsResourceResult(
            name="cleanup.policy", value="delete", config_source=5, documentation=None
        )
        result = describe_configs.DescribeConfigsResult(
            error_message=None,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            configs=[*configs, default],
        )
        return describe_configs.DescribeConfigsResponse(results=[result])

    def _incremental_alter_configs(
        self, request: incremental_alter_configs.IncrementalAlterConfigsRequest
    ) -> Answer:
        (resource,) = request.resources
        configs = self.topics[resource.resource_name].configs
        for change in resource.configs:
            if change.config_operation == 0:
                configs[change.name] = change.value or ""
            else:
                configs.pop(change.name, None)
        result = incremental_alter_configs.AlterConfigsResourceResponse(
            error_message=None, resource_type=resource.resource_type, resource_name=resource.resource_name
        )
        return incremental_alter_configs.IncrementalAlterConfigsResponse(responses=[result])

    def _init_producer_id(self, _: Any) -> Answer:
        return init_producer_id.InitProducerIdResponse(producer_id=77, producer_epoch=0)

    def _list_offsets(self, request: list_offsets.ListOffsetsRequest) -> Answer:
        topics = []
        for topic in request.topics:
            known = self.topics[topic.name]
            partitions = []
            for partition in topic.partitions:
                index = partition.partition_index
                end = known.end_offset(index)
                if partition.timestamp == EARLIEST_TIMESTAMP:
                    offset = 0
                elif partition.timestamp == LATEST_TIMESTAMP:
                    offset = end
                else:
                    offset = next(
                        (
                            header.base_offset
                            for _, header in iterate_headers(known.logs[index])
                            if header.max_timestamp >= partition.timestamp
                        ),
                        -1,
                    )
                partitions.append(
                    list_offsets.ListOffsetsPartitionResponse(partition_index=index, offset=offset)
                )
            topics.append(list_offsets.ListOffsetsTopicResponse(name=topic.name, partitions=partitions))
        return list_offsets.ListOffsetsResponse(topics=topics)

    def _produce(self, request: produce.ProduceRequest) -> Answer:
        names = {topic.topic_id: name for name, topic in self.topics.items()}
        responses = []
        for topic in request.topic_data:
            name = topic.name or names[topic.topic_id]
            partitions = []
            for data in topic.partition_data:
                batch = bytearray(data.records or b"")
                log = self.topics[name].logs[data.index]
                offset = self.topics[name].end_offset(data.index)
                stamp(batch, offset, 0)
                log += batch
                partitions.append(produce.PartitionProduceResponse(index=data.index, base_offset=offset))
            responses.append(
                produce.TopicProduceResponse(
                    name=topic.name, topic_id=topic.topic_id, partition_responses=partitions
                )
            )
        return produce.ProduceResponse(responses=responses) if request.acks else None

    def _fetch(self, request: fetch.FetchRequest) -> Answer:
        names = {topic.topic_id: name for name, topic in self.topics.items()}
        responses = []
        for topic in request.topics:
            name = topic.topic or names[topic.topic_id]
            partitions = []
            for wanted in topic.partitions:
                log = self.topics[name].logs[wanted.partition]
                position = next(
                    (
                        position
                        for position, header in iterate_headers(log)
                        if header.last_offset >= wanted.fetch_offset
                    ),
                    len(log),
                )
                end = position
                if position < len(log):  # a batch and a half: the client has to cope with what is cut
                    whole = position + parse_header(log, position).size
                    end = min(len(log), whole + 50)
                partitions.append(
                    fetch.PartitionData(
                        partition_index=wanted.partition,
                        high_watermark=self.topics[name].end_offset(wanted.partition),
                        aborted_transactions=self.aborted,
                        records=bytes(log[position:end]),
                    )
                )
            responses.append(
                fetch.FetchableTopicResponse(
                    topic=topic.topic, topic_id=topic.topic_id, partitions=partitions
                )
            )
        return fetch.FetchResponse(responses=responses)
