"""Which client pushes what, and when it may (KIP-714)."""

from __future__ import annotations

import zlib
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.metadata.image import ConfigResource, ResourceType
from moldau.records.compression import Codec, compress
from moldau.server import telemetry as module
from moldau.server.telemetry import INSTANCES_MAX, Client, Subscription, Telemetry, read_payload
from moldau.wire.errors import ErrorCode as E
from moldau.wire.errors import KafkaError
from moldau.wire.ids import ZERO_UUID, Uuid, uuid_to_string
from moldau.wire.messages import incremental_alter_configs as alter
from moldau.wire.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from moldau.wire.messages.push_telemetry import PushTelemetryRequest
from tests.server.sim_node import SimNode

NOW_MS = 1_700_000_000_000
CLIENT = Client("client-1", "librdkafka", "2.6.0", "10.0.0.1", 40_000)
ID = Uuid(bytes(range(100, 116)))


def rules(**subscriptions: dict[str, str]) -> dict[ConfigResource, dict[str, str]]:
    return {
        ConfigResource(ResourceType.CLIENT_METRICS, name): {
            key.replace("_", "."): value for key, value in overrides.items()
        }
        for name, overrides in subscriptions.items()
    }


def subscribed(
    configs: dict[ConfigResource, dict[str, str]], client: Client = CLIENT, instance_id: Uuid = ID
) -> Subscription:
    telemetry = Telemetry(Random(7))
    telemetry.update(configs)
    return telemetry.get_subscription(instance_id, client, NOW_MS)[1]


def push(
    telemetry: Telemetry,
    subscription: Subscription,
    now_ms: int,
    *,
    client: Client = CLIENT,
    instance_id: Uuid = ID,
    terminating: bool = False,
    compression_type: int = Codec.ZSTD,
    size: int = 10,
) -> E:
    try:
        telemetry.check_push(
            instance_id,
            client,
            now_ms,
            subscription_id=subscription.subscription_id,
            terminating=terminating,
            compression_type=compression_type,
            size=size,
            bytes_max=1000,
        )
    except KafkaError as failure:
        return failure.code
    return E.NONE


def test_who_matches_nothing_pushes_nothing() -> None:
    subscription = subscribed(rules(other={"metrics": "*", "match": "client_id=nobody"}))
    assert (subscription.metrics, subscription.push_interval_ms) == ((), 300_000)


def test_all_that_match_count_together() -> None:
    configs = rules(
        a={"metrics": "x,y", "interval_ms": "5000"},
        b={"metrics": "y,z", "interval_ms": "900", "match": "client_id=client-.*"},
        c={"metrics": "no", "interval_ms": "100", "match": "client_id=client-1,client_source_port=1"},
    )
    subscription = subscribed(configs)
    assert (subscription.metrics, subscription.push_interval_ms) == (("x", "y", "z"), 900)
    everything = subscribed(configs | rules(d={"metrics": "q,*"}))
    assert everything.metrics == ("*",)


@pytest.mark.parametrize(
    "match",
    [
        f"client_instance_id={uuid_to_string(ID)}",
        "client_id=client-1",
        "client_software_name=librd.*",
        "client_software_version=2\\.6\\..",
        "client_source_address=10\\..*",
        "client_source_port=40000",
    ],
)
def test_matches_by_what_is_known_of_a_client(match: str) -> None:
    configs = rules(a={"metrics": "x", "match": match})
    assert subscribed(configs).metrics == ("x",)
    other = Client(None, "other", "0", "::1", 1)
    assert subscribed(configs, other, Uuid(bytes(range(16)))).metrics == ()


def test_a_pattern_has_to_match_as_a_whole() -> None:
    assert subscribed(rules(a={"metrics": "x", "match": "client_id=client"})).metrics == ()


def test_the_id_stands_for_the_subscription_of_one_instance() -> None:
    one = rules(a={"metrics": "x", "interval_ms": "900"})
    assert subscribed(one) == subscribed(rules(b={"metrics": "x", "interval_ms": "900"}))
    ids = {
        subscribed(one).subscription_id,
        subscribed(rules(a={"metrics": "x", "interval_ms": "901"})).subscription_id,
        subscribed(rules(a={"metrics": "y", "interval_ms": "900"})).subscription_id,
        subscribed(one, instance_id=Uuid(bytes(range(16)))).subscription_id,
    }
    assert len(ids) == 4


def test_a_new_client_gets_an_id() -> None:
    telemetry = Telemetry(Random(7))
    first, _ = telemetry.get_subscription(ZERO_UUID, CLIENT, NOW_MS)
    second, _ = telemetry.get_subscription(ZERO_UUID, CLIENT, NOW_MS)
    assert len({first, second, ZERO_UUID}) == 3


def test_asking_too_often_is_throttled() -> None:
    telemetry = Telemetry(Random(7))
    telemetry.update(rules(a={"metrics": "x", "interval_ms": "1000"}))
    telemetry.get_subscription(ID, CLIENT, NOW_MS)
    with pytest.raises(KafkaError) as refused:
        telemetry.get_subscription(ID, CLIENT, NOW_MS + 999)
    assert refused.value.code == E.THROTTLING_QUOTA_EXCEEDED
    telemetry.get_subscription(ID, CLIENT, NOW_MS + 1000)
    assert telemetry.counters.throttles == 1


def test_the_first_push_comes_at_any_time_and_others_an_interval_apart() -> None:
    telemetry = Telemetry(Random(7))
    telemetry.update(rules(a={"metrics": "x", "interval_ms": "1000"}))
    _, subscription = telemetry.get_subscription(ID, CLIENT, NOW_MS)
    times = [5, 10, 1004, 1005, 2005]
    assert [push(telemetry, subscription, NOW_MS + ms) for ms in times] == [
        E.NONE,
        E.THROTTLING_QUOTA_EXCEEDED,
        E.THROTTLING_QUOTA_EXCEEDED,
        E.NONE,
        E.NONE,
    ]


def test_the_last_push_may_come_early_and_is_the_last() -> None:
    telemetry = Telemetry(Random(7))
    _, subscription = telemetry.get_subscription(ID, CLIENT, NOW_MS)
    assert push(telemetry, subscription, NOW_MS + 1) == E.NONE
    assert push(telemetry, subscription, NOW_MS + 2, terminating=True) == E.NONE
    assert push(telemetry, subscription, NOW_MS + 400_000, terminating=True) == E.INVALID_REQUEST


def test_after_a_change_a_client_has_to_ask_again_and_may_at_once() -> None:
    telemetry = Telemetry(Random(7))
    telemetry.update(rules(a={"metrics": "x"}))
    _, old = telemetry.get_subscription(ID, CLIENT, NOW_MS)
    telemetry.update(rules(a={"metrics": "y"}))
    assert push(telemetry, old, NOW_MS + 1) == E.UNKNOWN_SUBSCRIPTION_ID
    _, new = telemetry.get_subscription(ID, CLIENT, NOW_MS + 2)
    assert new.metrics == ("y",)
    assert push(telemetry, new, NOW_MS + 3) == E.NONE
    assert telemetry.counters.unknown_subscription_requests == 1


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"compression_type": 5}, E.UNSUPPORTED_COMPRESSION_TYPE),
        ({"compression_type": -1}, E.UNSUPPORTED_COMPRESSION_TYPE),
        ({"compression_type": Codec.NONE}, E.NONE),
        ({"size": 1000}, E.NONE),
        ({"size": 1001}, E.TELEMETRY_TOO_LARGE),
        ({"instance_id": ZERO_UUID}, E.INVALID_REQUEST),
        ({"instance_id": Uuid(bytes(15) + b"\x01")}, E.INVALID_REQUEST),
    ],
)
def test_pushes_that_are_refused(fields: dict[str, object], code: E) -> None:
    telemetry = Telemetry(Random(7))
    _, subscription = telemetry.get_subscription(ID, CLIENT, NOW_MS)
    assert push(telemetry, subscription, NOW_MS, **fields) == code  # type: ignore[arg-type]


def test_another_connection_and_a_long_silence_start_over() -> None:
    telemetry = Telemetry(Random(7))
    telemetry.get_subscription(ID, CLIENT, NOW_MS)
    telemetry.get_subscription(ID, CLIENT._replace(port=2), NOW_MS + 1)
    telemetry.get_subscription(ID, CLIENT._replace(port=2), NOW_MS + 3 * 300_000 + 2)
    assert telemetry.instance_count == 1
    telemetry.get_subscription(ZERO_UUID, CLIENT, NOW_MS + 10 * 300_000)
    assert telemetry.instance_count == 1  # the silent one is forgotten


def test_only_so_many_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    assert INSTANCES_MAX == 16_384  # as many as Kafka
    monkeypatch.setattr(module, "INSTANCES_MAX", 5)
    telemetry = Telemetry(Random(7))
    for port in range(20):
        telemetry.get_subscription(ZERO_UUID, CLIENT._replace(port=port), NOW_MS)
    assert telemetry.instance_count == 5


@given(st.sampled_from([Codec.NONE, *module.ACCEPTED_COMPRESSION_TYPES]), st.binary(max_size=5000))
def test_counts_what_was_pushed_as_it_was_before_compression(codec: Codec, metrics: bytes) -> None:
    assert read_payload(codec, compress(codec, metrics)) == len(metrics)


@given(st.sampled_from(module.ACCEPTED_COMPRESSION_TYPES), st.binary(min_size=1, max_size=200))
def test_any_bytes_are_read_or_refused(codec: Codec, pushed: bytes) -> None:
    try:
        assert read_payload(codec, pushed) >= 0
    except KafkaError as failure:
        assert failure.code in (E.INVALID_RECORD, E.TELEMETRY_TOO_LARGE)


def test_a_small_push_may_not_become_a_large_one() -> None:
    bomb = zlib.compress(bytes(module.PAYLOAD_BYTES_MAX + 1), 9, 31)
    with pytest.raises(KafkaError) as refused:
        read_payload(Codec.GZIP, bomb)
    assert refused.value.code == E.TELEMETRY_TOO_LARGE


def test_a_client_subscribes_and_pushes(node: SimNode) -> None:
    configs = [
        alter.AlterableConfig(name=name, config_operation=0, value=value)
        for name, value in (("metrics", "org.apache.kafka.producer"), ("interval.ms", "1000"))
    ]
    resource = alter.AlterConfigsResource(resource_type=16, resource_name="sub", configs=configs)
    node.call(alter.IncrementalAlterConfigsRequest(resources=[resource]), 1)
    told = node.call(GetTelemetrySubscriptionsRequest(client_instance_id=ZERO_UUID), 0)
    assert (told.error_code, told.push_interval_ms, told.telemetry_max_bytes) == (E.NONE, 1000, 1 << 20)
    assert told.requested_metrics == ["org.apache.kafka.producer"]
    assert told.accepted_compression_types == [4, 3, 1, 2]
    assert told.delta_temporality

    def pushed(metrics: bytes, compression_type: int) -> int:
        node.simulation.advance(1)
        request = PushTelemetryRequest(
            client_instance_id=told.client_instance_id,
            subscription_id=told.subscription_id,
            compression_type=compression_type,
            metrics=metrics,
        )
        return node.call(request, 0).error_code

    assert pushed(compress(Codec.ZSTD, bytes(500)), Codec.ZSTD) == E.NONE
    assert pushed(b"no zstd", Codec.ZSTD) == E.INVALID_RECORD
    assert pushed(b"", Codec.NONE) == E.NONE
    counters = node.services.telemetry.counters
    assert (counters.pushes, counters.pushed_bytes, counters.push_errors) == (1, 500, 1)
