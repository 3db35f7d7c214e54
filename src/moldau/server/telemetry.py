"""Client telemetry (KIP-714): which client is to push which metrics and how often, and whether it may now.

Subscriptions come from the cluster's configuration, clients from requests; time and chance are given. There
is no receiver to hand metrics on to: what clients push is checked, counted and dropped.

A client instance is forgotten when its connection is another one than before, when it was silent for three of
its push intervals (and a minute), and when more than `INSTANCES_MAX` others were heard of since. Whoever is
forgotten just starts over.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from crc32c import crc32c

from moldau.config.client_metrics import ClientMetricsConfig, parse_match
from moldau.config.option import ConfigError
from moldau.metadata.image import ConfigResource, ResourceType
from moldau.records.compression import Codec, decompress
from moldau.wire.errors import ErrorCode, KafkaError
from moldau.wire.ids import ZERO_UUID, Uuid, is_reserved, random_uuid, uuid_to_string

INSTANCES_MAX = 16_384
SILENCE_MIN_MS = 60_000
INTERVAL_DEFAULT_MS = ClientMetricsConfig.from_overrides({}).interval_ms
ALL_METRICS = "*"
ACCEPTED_COMPRESSION_TYPES = (Codec.ZSTD, Codec.LZ4, Codec.GZIP, Codec.SNAPPY)
PAYLOAD_BYTES_MAX = 16 << 20
"""Pushed metrics that are larger once decompressed are refused, whatever telemetry.max.bytes allows."""

_ASKS_AGAIN = (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)


class Client(NamedTuple):
    """Who asks, by what a subscription may match; None where it did not say."""

    client_id: str | None
    software_name: str
    software_version: str
    host: str
    port: int


class Subscription(NamedTuple):
    """What one client is to push. The id stands for all the rest."""

    subscription_id: int
    metrics: tuple[str, ...]
    push_interval_ms: int


@dataclass(slots=True)
class TelemetryCounters:
    """Since the start; the meanings of Kafka's client-metrics group, with what was pushed in place of what
    was exported."""

    pushes: int = 0
    pushed_bytes: int = 0
    push_errors: int = 0
    throttles: int = 0
    unknown_subscription_requests: int = 0


@dataclass(slots=True)
class _Instance:
    connection: tuple[str, int]
    generation: int
    subscription: Subscription
    last_get_ms: int = 0
    last_push_ms: int = 0
    heard_ms: int = 0
    terminating: bool = False
    last_error: ErrorCode = ErrorCode.NONE

    def may_get(self, now_ms: int) -> bool:
        elapsed_ms = now_ms - max(self.last_get_ms, self.last_push_ms)
        # Who was told that its subscription or its codec is wrong has to ask again, at once.
        return elapsed_ms >= self.subscription.push_interval_ms or self.last_error in _ASKS_AGAIN

    def may_push(self, now_ms: int) -> bool:
        # The first push after getting the subscription comes at any time: clients spread it at random.
        if self.last_get_ms > self.last_push_ms:
            return True
        return now_ms - self.last_push_ms >= self.subscription.push_interval_ms


class _Rule(NamedTuple):
    """A client metrics resource: who pushes what."""

    metrics: tuple[str, ...]
    interval_ms: int
    patterns: tuple[tuple[str, re.Pattern[str]], ...]


class Telemetry:
    def __init__(self, random: Random) -> None:
        self.counters = TelemetryCounters()
        self._random = random
        self._configs: Mapping[ConfigResource, Mapping[str, str]] | None = None
        self._rules: tuple[_Rule, ...] = ()
        self._generation = 0  # of the rules: instances of an older one are looked at again
        self._instances: OrderedDict[Uuid, _Instance] = OrderedDict()

    @property
    def instance_count(self) -> int:
        return len(self._instances)

    @property
    def is_asked_for(self) -> bool:
        """There is a client metrics resource: some clients may have something to push."""
        return bool(self._rules)

    def update(self, configs: Mapping[ConfigResource, Mapping[str, str]]) -> None:
        """The configurations of the current image. Costs nothing while they are the same object."""
        if configs is self._configs:
            return
        self._configs = configs
        rules = tuple(
            _rule(overrides)
            for resource, overrides in configs.items()
            if resource.type == ResourceType.CLIENT_METRICS
        )
        if rules != self._rules:
            self._rules = rules
            self._generation += 1

    def get_subscription(self, instance_id: Uuid, client: Client, now_ms: int) -> tuple[Uuid, Subscription]:
        """The client's instance id, a new one if it came without, and what it is to push. Raises
        THROTTLING_QUOTA_EXCEEDED for a client that asks more often than it pushes."""
        if instance_id == ZERO_UUID:
            instance_id = random_uuid(self._random)
        instance = self._instance(instance_id, client, now_ms)
        if not instance.may_get(now_ms):
            self.counters.throttles += 1
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        instance.last_get_ms = now_ms
        instance.last_error = ErrorCode.NONE
        return instance_id, instance.subscription

    def check_push(
        self,
        instance_id: Uuid,
        client: Client,
        now_ms: int,
        *,
        subscription_id: int,
        terminating: bool,
        compression_type: int,
        size: int,
        bytes_max: int,
    ) -> None:
        """Whether the client may push this now. The payload is for `read_payload` to look at, and the outcome
        for `count_push`."""
        if is_reserved(instance_id):
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        instance = self._instance(instance_id, client, now_ms)
        try:
            if instance.terminating:  # that it said was the last one
                raise KafkaError(ErrorCode.INVALID_REQUEST)
            if instance.may_push(now_ms):
                instance.last_push_ms = now_ms
            elif not terminating:
                self.counters.throttles += 1
                raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
            if subscription_id != instance.subscription.subscription_id:
                self.counters.unknown_subscription_requests += 1
                raise KafkaError(ErrorCode.UNKNOWN_SUBSCRIPTION_ID)
            if compression_type not in (Codec.NONE, *ACCEPTED_COMPRESSION_TYPES):
                raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
            if size > bytes_max:
                raise KafkaError(ErrorCode.TELEMETRY_TOO_LARGE)
            instance.last_error = ErrorCode.NONE
        except KafkaError as failure:
            instance.last_error = failure.code
            raise
        finally:
            instance.terminating = terminating

    def count_push(self, size: int) -> None:
        self.counters.pushes += 1
        self.counters.pushed_bytes += size

    def count_push_error(self) -> None:
        self.counters.push_errors += 1

    def _instance(self, instance_id: Uuid, client: Client, now_ms: int) -> _Instance:
        self._forget_silent(now_ms)
        connection = client.host, client.port
        instance = self._instances.get(instance_id)
        if (
            instance is None
            or instance.connection != connection
            or instance.generation != self._generation
            or _is_silent(instance, now_ms)
        ):
            subscription = self._subscription(instance_id, client)
            instance = self._instances[instance_id] = _Instance(connection, self._generation, subscription)
        instance.heard_ms = now_ms
        self._instances.move_to_end(instance_id)
        if len(self._instances) > INSTANCES_MAX:
            self._instances.popitem(last=False)
        return instance

    def _forget_silent(self, now_ms: int) -> None:
        """Those at the end of the line. One that is silent behind another that need not speak yet waits."""
        while self._instances:
            instance_id, instance = next(iter(self._instances.items()))
            if not _is_silent(instance, now_ms):
                return
            del self._instances[instance_id]

    def _subscription(self, instance_id: Uuid, client: Client) -> Subscription:
        """All the rules that match, as one."""
        attributes = {
            "client_instance_id": uuid_to_string(instance_id),
            "client_id": client.client_id,
            "client_software_name": client.software_name,
            "client_software_version": client.software_version,
            "client_source_address": client.host,
            "client_source_port": str(client.port),
        }
        matching = [rule for rule in self._rules if _matches(rule, attributes)]
        metrics = {name for rule in matching for name in rule.metrics}
        if ALL_METRICS in metrics:
            metrics = {ALL_METRICS}
        interval_ms = min((rule.interval_ms for rule in matching), default=INTERVAL_DEFAULT_MS)
        ordered = tuple(sorted(metrics))
        return Subscription(_subscription_id(ordered, interval_ms, instance_id), ordered, interval_ms)


def read_payload(compression_type: int, metrics: bytes) -> int:
    """How many bytes of metrics there are. Raises TELEMETRY_TOO_LARGE for too many of them, INVALID_RECORD
    for what cannot be decompressed. Takes its time: not for the loop."""
    try:
        return len(decompress(compression_type, metrics, PAYLOAD_BYTES_MAX))
    except KafkaError as failure:
        too_large = failure.code == ErrorCode.MESSAGE_TOO_LARGE
        raise KafkaError(ErrorCode.TELEMETRY_TOO_LARGE if too_large else ErrorCode.INVALID_RECORD) from None


def _rule(overrides: Mapping[str, str]) -> _Rule:
    try:
        config = ClientMetricsConfig.from_overrides(overrides)
        # Of a selector that is named twice, the last pattern counts.
        patterns = dict(map(parse_match, config.match))
    except ConfigError:
        # It was accepted once, perhaps by another version: it asks for nothing.
        return _Rule((), INTERVAL_DEFAULT_MS, ())
    return _Rule(config.metrics, config.interval_ms, tuple(patterns.items()))


def _matches(rule: _Rule, attributes: Mapping[str, str | None]) -> bool:
    for name, pattern in rule.patterns:
        value = attributes.get(name)
        if value is None or pattern.fullmatch(value) is None:
            return False
    return True


def _is_silent(instance: _Instance, now_ms: int) -> bool:
    limit_ms = max(SILENCE_MIN_MS, 3 * instance.subscription.push_interval_ms)
    return now_ms - instance.heard_ms > limit_ms


def _subscription_id(metrics: tuple[str, ...], interval_ms: int, instance_id: Uuid) -> int:
    """The same for the same subscription of the same instance, also at another broker."""
    crc = crc32c(instance_id, crc32c(f"{','.join(metrics)};{interval_ms}".encode()))
    return crc - (1 << 32) if crc >> 31 else crc
