"""Dynamic configurations and feature levels: what is recorded, and what is refused with which code."""

from __future__ import annotations

import pytest
from cluster import CONFIG, carried_out, cluster

from moldau.controller.configs import decide_alter_configs, decide_incremental_alter_configs
from moldau.controller.decision import RECORDS_MAX
from moldau.controller.features import decide_update_features
from moldau.metadata.delta import apply_records
from moldau.metadata.image import ClusterImage
from moldau.metadata.records import ClearElrRecord, ConfigRecord, TopicRecord
from moldau.wire.errors import ErrorCode
from moldau.wire.ids import Uuid
from moldau.wire.messages import alter_configs, incremental_alter_configs
from moldau.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

TOPIC, BROKER, CLIENT_METRICS, GROUP = 2, 4, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
E = ErrorCode


def image_with_topic() -> ClusterImage:
    return apply_records(cluster(1), [TopicRecord(name="t", topic_id=Uuid(b"T" * 16))])[0]


def altered(
    image: ClusterImage,
    type: int,
    name: str,
    *changes: tuple[str, int, str | None],
    validate_only: bool = False,
) -> tuple[ClusterImage, ErrorCode]:
    resource = incremental_alter_configs.AlterConfigsResource(
        resource_type=type,
        resource_name=name,
        configs=[
            incremental_alter_configs.AlterableConfig(name=key, config_operation=operation, value=value)
            for key, operation, value in changes
        ],
    )
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(
        resources=[resource], validate_only=validate_only
    )
    decision = decide_incremental_alter_configs(image, request, config=CONFIG)
    (response,) = decision.reply.responses
    assert (response.resource_type, response.resource_name) == (type, name)
    return carried_out(image, decision), ErrorCode(response.error_code)


def replaced(
    image: ClusterImage, *resources: tuple[int, str, dict[str, str | None]]
) -> tuple[ClusterImage, list[int]]:
    request = alter_configs.AlterConfigsRequest(
        resources=[
            alter_configs.AlterConfigsResource(
                resource_type=type,
                resource_name=name,
                configs=[
                    alter_configs.AlterableConfig(name=key, value=value) for key, value in values.items()
                ],
            )
            for type, name, values in resources
        ]
    )
    decision = decide_alter_configs(image, request, config=CONFIG)
    return carried_out(image, decision), [response.error_code for response in decision.reply.responses]


def test_options_are_set_and_deleted_one_by_one() -> None:
    image, code = altered(
        image_with_topic(), TOPIC, "t", ("retention.ms", SET, "5"), ("segment.ms", SET, "6")
    )
    assert (code, image.config(TOPIC, "t")) == (0, {"retention.ms": "5", "segment.ms": "6"})
    image, code = altered(image, TOPIC, "t", ("retention.ms", DELETE, None), ("flush.ms", SET, "7"))
    assert (code, image.config(TOPIC, "t")) == (0, {"segment.ms": "6", "flush.ms": "7"})


def test_lists_are_added_to_and_taken_from() -> None:
    image, code = altered(image_with_topic(), TOPIC, "t", ("cleanup.policy", APPEND, "compact"))
    assert (code, image.config(TOPIC, "t")) == (0, {"cleanup.policy": "delete,compact"})
    image, code = altered(image, TOPIC, "t", ("cleanup.policy", SUBTRACT, "delete"))
    assert (code, image.config(TOPIC, "t")) == (0, {"cleanup.policy": "compact"})
    _, code = altered(image, TOPIC, "t", ("retention.ms", APPEND, "1"))
    assert code == E.INVALID_CONFIG


def test_a_list_grows_no_longer_than_a_record_can_hold() -> None:
    name, half = "leader.replication.throttled.replicas", ",".join(f"0:{each}" for each in range(3000))
    image, code = altered(image_with_topic(), TOPIC, "t", (name, APPEND, half))
    assert code == E.NONE
    after, code = altered(image, TOPIC, "t", (name, APPEND, half.replace("0:", "1:")))
    assert (code, after.configs) == (E.INVALID_CONFIG, image.configs)


def test_what_does_not_change_is_not_recorded() -> None:
    image, _ = altered(image_with_topic(), TOPIC, "t", ("retention.ms", SET, "5"))
    again, code = altered(image, TOPIC, "t", ("retention.ms", SET, "5"), ("flush.ms", DELETE, None))
    assert code == 0 and again.configs is image.configs


def test_validation_only_records_nothing() -> None:
    image, code = altered(image_with_topic(), TOPIC, "t", ("retention.ms", SET, "5"), validate_only=True)
    assert code == 0 and not image.configs


@pytest.mark.parametrize(
    ("type", "name", "change", "code"),
    [
        (TOPIC, "nowhere", ("retention.ms", SET, "5"), E.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "", ("retention.ms", SET, "5"), E.INVALID_REQUEST),
        (TOPIC, "a b", ("retention.ms", SET, "5"), E.INVALID_TOPIC_EXCEPTION),
        (TOPIC, "t", ("retention.ms", SET, "x"), E.INVALID_CONFIG),
        (TOPIC, "t", ("nope", SET, "x"), E.INVALID_CONFIG),
        (TOPIC, "t", ("retention.ms", SET, None), E.INVALID_REQUEST),
        (TOPIC, "t", ("retention.ms", 9, "1"), E.INVALID_REQUEST),
        (TOPIC, "t", ("cleanup.policy", APPEND, ""), E.INVALID_CONFIG),
        (TOPIC, "t", ("leader.replication.throttled.replicas", SET, "0:1,"), E.NONE),
        (BROKER, "x", ("log.retention.ms", SET, "5"), E.INVALID_REQUEST),
        (BROKER, " 1", ("log.retention.ms", SET, "5"), E.INVALID_REQUEST),
        (BROKER, "1", ("num.io.threads", SET, "99"), E.INVALID_REQUEST),
        (BROKER, "-1", ("log.retention.ms", SET, "5"), E.INVALID_REQUEST),
        (BROKER, "9", ("log.retention.ms", SET, "5"), E.BROKER_ID_NOT_REGISTERED),
        (BROKER, "1", ("node.id", SET, "5"), E.INVALID_REQUEST),
        (BROKER, "1", ("log.retention.ms", SET, "5"), E.NONE),
        (BROKER, "", ("log.retention.ms", SET, "5"), E.NONE),
        (GROUP, "", ("consumer.session.timeout.ms", SET, "50000"), E.INVALID_REQUEST),
        (GROUP, "g", ("consumer.session.timeout.ms", SET, "50000"), E.NONE),
        (GROUP, "g", ("nope", SET, "1"), E.INVALID_CONFIG),
        (CLIENT_METRICS, "m", ("interval.ms", SET, "1000"), E.NONE),
        (CLIENT_METRICS, "m", ("interval.ms", SET, "1"), E.INVALID_REQUEST),
        (CLIENT_METRICS, "m", ("interval.ms", SET, "99999999999"), E.INVALID_CONFIG),
        (CLIENT_METRICS, "m", ("metrics", SET, "a,"), E.INVALID_CONFIG),
        (CLIENT_METRICS, "", ("interval.ms", SET, "1000"), E.INVALID_REQUEST),
        (3, "x", ("a", SET, "1"), E.INVALID_REQUEST),
    ],
)
def test_each_resource_has_its_rules(
    type: int, name: str, change: tuple[str, int, str | None], code: ErrorCode
) -> None:
    image, outcome = altered(image_with_topic(), type, name, change)
    assert outcome == code
    assert dict(image.config(type, name)) == ({change[0]: change[2]} if code == 0 else {})


def test_the_legacy_way_replaces_everything() -> None:
    image, _ = altered(image_with_topic(), TOPIC, "t", ("retention.ms", SET, "5"), ("segment.ms", SET, "6"))
    image, codes = replaced(image, (TOPIC, "t", {"segment.ms": "6", "flush.ms": "7"}))
    assert (codes, image.config(TOPIC, "t")) == ([0], {"segment.ms": "6", "flush.ms": "7"})
    image, codes = replaced(image, (TOPIC, "t", {"flush.ms": None}))
    assert codes == [E.INVALID_REQUEST]
    image, codes = replaced(image, (TOPIC, "t", {}))
    assert codes == [0] and not image.configs


def test_a_resource_twice_is_refused_and_the_others_are_done() -> None:
    topic: tuple[int, str, dict[str, str | None]] = (TOPIC, "t", {"flush.ms": "1"})
    image, codes = replaced(
        image_with_topic(), topic, (GROUP, "g", {"consumer.session.timeout.ms": "50000"}), topic
    )
    assert codes == [E.INVALID_REQUEST, 0, E.INVALID_REQUEST]
    assert [resource.name for resource in image.configs] == ["g"]


@pytest.mark.parametrize("validate_only", [False, True])
def test_too_many_changes_at_once_are_none(validate_only: bool) -> None:
    options = [alter_configs.AlterableConfig(name=f"plugin.{each}", value="1") for each in range(RECORDS_MAX)]
    fitting = alter_configs.AlterConfigsResource(resource_type=BROKER, resource_name="1", configs=options)
    topic = alter_configs.AlterConfigsResource(
        resource_type=TOPIC,
        resource_name="t",
        configs=[alter_configs.AlterableConfig(name="flush.ms", value="5")],
    )
    for resources, code in (([fitting], E.NONE), ([fitting, topic], E.POLICY_VIOLATION)):
        decision = decide_alter_configs(
            image_with_topic(),
            alter_configs.AlterConfigsRequest(resources=resources, validate_only=validate_only),
            config=CONFIG,
        )
        assert {response.error_code for response in decision.reply.responses} == {code}
        assert len(decision.records) == (RECORDS_MAX if code == E.NONE and not validate_only else 0)


@pytest.mark.parametrize(("type", "name", "cleared"), [(TOPIC, "t", "t"), (BROKER, "", "")])
def test_another_min_isr_makes_everyone_eligible_unknown(type: int, name: str, cleared: str) -> None:
    resource = alter_configs.AlterConfigsResource(
        resource_type=type,
        resource_name=name,
        configs=[alter_configs.AlterableConfig(name="min.insync.replicas", value="1")],
    )
    decision = decide_alter_configs(
        image_with_topic(), alter_configs.AlterConfigsRequest(resources=[resource]), config=CONFIG
    )
    first, second = (record.message for record in decision.records)
    assert isinstance(first, ConfigRecord) and isinstance(second, ClearElrRecord)
    assert second.topic_name == cleared


@pytest.mark.parametrize("operation", [SET, DELETE])
def test_with_elr_no_broker_has_a_min_isr_of_its_own(operation: int) -> None:
    """Not even one that is not there can be deleted."""
    value = "1" if operation == SET else None
    _, code = altered(image_with_topic(), BROKER, "1", ("min.insync.replicas", operation, value))
    assert code == E.INVALID_CONFIG


# ---------------------------------------------------------------- features


def updated(
    image: ClusterImage, *updates: tuple[str, int, int], version: int = 2
) -> tuple[ClusterImage, ErrorCode, str | None]:
    request = UpdateFeaturesRequest(
        feature_updates=[
            FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
            for name, level, kind in updates
        ]
    )
    decision = decide_update_features(image, request, version=version, node_id=1)
    return carried_out(image, decision), ErrorCode(decision.reply.error_code), decision.reply.error_message


def test_levels_move_down_and_up_again() -> None:
    image, code, _ = updated(cluster(1), ("transaction.version", 1, 2), ("group.version", 0, 2))
    assert (code, image.features["transaction.version"], "group.version" in image.features) == (0, 1, False)
    image, code, _ = updated(image, ("transaction.version", 2, 1))
    assert (code, image.features["transaction.version"]) == (0, 2)


@pytest.mark.parametrize(
    ("update", "message"),
    [
        (
            ("transaction.version", 1, 1),
            "Can't downgrade the version of this feature without setting the upgrade type",
        ),
        (("transaction.version", 9, 1), "Local controller 1 only supports versions 0-2"),
        (("nope", 1, 1), "Local controller 1 does not support this feature."),
        (("group.version", -1, 2), "A feature version cannot be less than 0."),
        (("group.version", 1, 0), "The controller does not support the given upgrade type."),
        (("kraft.version", 1, 1), "The voters of this quorum stay where they are kept."),
        (("metadata.version", 29, 2), "Refusing to perform the requested downgrade"),
        (("metadata.version", 29, 3), "Unsafe metadata downgrade is not supported in this version."),
    ],
)
def test_levels_that_cannot_be(update: tuple[str, int, int], message: str) -> None:
    image = cluster(1)
    after, code, text = updated(image, ("group.version", 0, 2), update)
    assert code == E.INVALID_UPDATE_VERSION
    assert message in str(text)
    assert after.features == image.features


def test_of_a_feature_that_is_named_twice_the_last_word_counts() -> None:
    image, code, _ = updated(cluster(1), ("group.version", 9, 1), ("group.version", 0, 2))
    assert (code, "group.version" in image.features) == (0, False)


def test_turning_elr_on_gives_the_cluster_one_min_isr_and_takes_those_of_brokers() -> None:
    off, _, _ = updated(cluster(1), ("eligible.leader.replicas.version", 0, 2))
    name = "min.insync.replicas"
    bare, _ = altered(off, BROKER, "", (name, DELETE, None))
    assert name not in bare.config(BROKER, "")
    bare, code = altered(bare, BROKER, "1", (name, SET, "2"), ("log.retention.ms", SET, "5"))
    assert code == E.NONE
    on, _, _ = updated(bare, ("eligible.leader.replicas.version", 1, 1))
    assert on.config(BROKER, "") == {name: "1"}
    assert on.config(BROKER, "1") == {"log.retention.ms": "5"}

    chosen, _ = altered(off, BROKER, "", (name, SET, "2"))
    on, _, _ = updated(chosen, ("eligible.leader.replicas.version", 1, 1))
    assert on.config(BROKER, "") == {name: "2"}


def test_a_feature_keeps_what_it_needs() -> None:
    lower, _, _ = updated(cluster(1), ("eligible.leader.replicas.version", 0, 2))
    lower, code, _ = updated(lower, ("metadata.version", 29, 2))
    assert code == E.INVALID_UPDATE_VERSION
