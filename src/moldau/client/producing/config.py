"""The options of a producer, and how they hang together."""

from __future__ import annotations

from moldau.client.config import ConnectionConfig, is_given
from moldau.config.option import (
    INT_MAX,
    ConfigError,
    Problem,
    Section,
    at_least,
    between,
    boolean,
    integer,
    long,
    one_of,
    string,
)
from moldau.records.compression import LEVELS, Codec

ACKS_ALL = -1
IN_FLIGHT_MAX_IDEMPOTENT = 5
"""A broker remembers so many batches of a producer, and tells a repeated one by them."""


class ProducerConfig(Section):
    TITLE = "Producer"

    acks = string(
        "acks",
        "all",
        one_of("all", "-1", "0", "1"),
        importance="low",
        doc="Whose word to wait for: nobody's (0), the leader's (1), or that of all in-sync replicas.",
    )
    enable_idempotence = boolean(
        "enable.idempotence",
        True,
        importance="low",
        doc="Batches are numbered: a broker drops what it gets twice, and takes nothing out of order.",
    )
    transactional_id = string(
        "transactional.id",
        None,
        importance="low",
        doc="The name of the producer across its lives; with it, it has transactions.",
    )
    transaction_timeout_ms = integer(
        "transaction.timeout.ms",
        60_000,
        at_least(1),
        importance="low",
        doc="A transaction that takes longer is aborted by its coordinator.",
    )
    transaction_two_phase_commit_enable = boolean(
        "transaction.two.phase.commit.enable",
        False,
        importance="low",
        doc="Transactions may be prepared, then wait for any time, for a coordinator outside of Kafka.",
    )
    linger_ms = long(
        "linger.ms", 5, at_least(0), doc="How long a batch that is not full waits for more records."
    )
    batch_size = integer(
        "batch.size", 16_384, at_least(0), doc="A batch of this many bytes is full, and leaves at once."
    )
    buffer_memory = long(
        "buffer.memory",
        32 << 20,
        at_least(0),
        importance="high",
        doc="Bytes of records that may wait to be acknowledged. Beyond that `send` waits.",
    )
    max_block_ms = long(
        "max.block.ms",
        60_000,
        at_least(0),
        doc="How long `send` and the calls of transactions may wait.",
    )
    max_request_size = integer(
        "max.request.size", 1 << 20, at_least(0), doc="The most bytes of a record, and of a request."
    )
    max_in_flight_requests_per_connection = integer(
        "max.in.flight.requests.per.connection",
        5,
        at_least(1),
        importance="low",
        doc="Requests that may be unanswered on a connection; at most 5 with idempotence, which keeps order.",
    )
    retries = integer(
        "retries",
        INT_MAX,
        between(0, INT_MAX),
        importance="high",
        doc="How often a batch is sent again after an error that may pass, within delivery.timeout.ms.",
    )
    delivery_timeout_ms = integer(
        "delivery.timeout.ms",
        120_000,
        at_least(0),
        doc="Whatever happens, what becomes of a record is known this long after `send`.",
    )
    compression_type = string(
        "compression.type",
        "none",
        one_of(*(codec.name.lower() for codec in Codec)),
        importance="high",
        doc="The codec of batches.",
    )
    compression_gzip_level = integer("compression.gzip.level", -1, doc="The level of gzip.")
    compression_lz4_level = integer("compression.lz4.level", 9, doc="The level of lz4.")
    compression_zstd_level = integer("compression.zstd.level", 3, doc="The level of zstd.")
    partitioner_ignore_keys = boolean(
        "partitioner.ignore.keys", False, doc="Records with a key, too, go where there is room."
    )
    partitioner_adaptive_partitioning_enable = boolean(
        "partitioner.adaptive.partitioning.enable",
        True,
        importance="low",
        doc="Records without a key go less to partitions whose brokers are slow.",
    )
    partitioner_availability_timeout_ms = long(
        "partitioner.availability.timeout.ms",
        0,
        at_least(0),
        importance="low",
        doc="Nor to those whose broker has taken nothing for this long; 0 does not look.",
    )

    @property
    def required_acks(self) -> int:
        return ACKS_ALL if self.acks in ("all", "-1") else int(self.acks)

    @property
    def codec(self) -> Codec:
        return Codec[self.compression_type.upper()]

    @property
    def level(self) -> int | None:
        levels = {
            Codec.GZIP: self.compression_gzip_level,
            Codec.LZ4: self.compression_lz4_level,
            Codec.ZSTD: self.compression_zstd_level,
        }
        return levels.get(self.codec)


def checked(
    connection: ConnectionConfig, config: ProducerConfig, *, idempotence_is_asked: bool = False
) -> ProducerConfig:
    """The options as they are used. As in Kafka, idempotence gives way to options that contradict it, unless
    it was asked for. Raises ConfigError with all that is wrong."""
    problems: list[Problem] = []
    transactional = config.transactional_id is not None
    if config.transactional_id == "":
        problems.append(Problem("transactional.id", "transactional.id must not be empty"))
    against = _against_idempotence(config)
    if against is not None and config.enable_idempotence:
        if transactional or idempotence_is_asked:
            problems.append(Problem(against[0], f"{against[1]} with idempotence"))
        else:
            config = config.replace(enable_idempotence=False)
    if transactional and not config.enable_idempotence:
        problems.append(Problem("enable.idempotence", "A transactional producer needs enable.idempotence"))
    least = min(config.linger_ms + connection.request_timeout_ms, INT_MAX)
    if config.delivery_timeout_ms < least:
        if is_given(config, "delivery_timeout_ms"):
            message = "delivery.timeout.ms should be at least linger.ms + request.timeout.ms"
            problems.append(Problem("delivery.timeout.ms", message))
        config = config.replace(delivery_timeout_ms=least)
    if config.transaction_two_phase_commit_enable:
        if not transactional:
            problems.append(
                Problem("transactional.id", "transaction.two.phase.commit.enable needs a transactional.id")
            )
        if is_given(config, "transaction_timeout_ms"):
            message = "transaction.timeout.ms has no meaning with transaction.two.phase.commit.enable"
            problems.append(Problem("transaction.timeout.ms", message))
    level, allowed = config.level, LEVELS.get(config.codec)
    if allowed is not None and level not in allowed and not (config.codec is Codec.GZIP and level == -1):
        name = f"compression.{config.compression_type}.level"
        problems.append(Problem(name, f"Invalid value {level} for configuration {name}"))
    if problems:
        raise ConfigError(tuple(problems))
    return config


def _against_idempotence(config: ProducerConfig) -> tuple[str, str] | None:
    if config.required_acks != ACKS_ALL:
        return "acks", "acks must be all"
    if config.retries == 0:
        return "retries", "retries must not be 0"
    if config.max_in_flight_requests_per_connection > IN_FLIGHT_MAX_IDEMPOTENT:
        name = "max.in.flight.requests.per.connection"
        return name, f"{name} must be at most {IN_FLIGHT_MAX_IDEMPOTENT}"
    return None
