"""What a topic asks of a batch that a client wants to append, beyond a glance at the header.

`Log.append_as_leader` clears an ordinary batch itself. Everything else comes here: batches that are refused,
to say why, and topics that need more: compaction (keys), LogAppendTime, recompression, a bound on old
timestamps.
"""

from __future__ import annotations

from dataclasses import dataclass

from moldau.config.topic import TopicConfig
from moldau.log.errors import NotOneBatch
from moldau.records.batch import (
    TimestampType,
    check_crc,
    iterate_headers,
    parse_header,
    stamp_log_append_time,
    stamp_max_timestamp,
)
from moldau.records.compression import Codec
from moldau.records.validate import (
    RecordRules,
    recompress,
    validate_header,
    validate_record_count,
    validate_records,
)
from moldau.wire.errors import ErrorCode, KafkaError

_INT64_MAX = (1 << 63) - 1
_PRODUCER = "producer"
_CODECS = {"uncompressed": Codec.NONE, "none": Codec.NONE} | {
    codec.name.lower(): codec for codec in Codec if codec is not Codec.NONE
}


def whole_batch(records: memoryview) -> memoryview:
    """`records` without a torn tail, if they hold one batch; otherwise the error for what they hold."""
    try:
        spans = [(position, header) for position, header in iterate_headers(records)]
    except KafkaError as failure:
        raise NotOneBatch(failure.code, failure.message) from None
    if len(spans) != 1:
        raise NotOneBatch(
            ErrorCode.INVALID_RECORD, f"{len(spans)} record batches for a partition that takes one at a time"
        )
    return records[: spans[0][1].size]


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendRules:
    message_bytes_max: int
    segment_bytes: int
    records: RecordRules
    codec: Codec | None
    """What batches are compressed with; None leaves them as their producer made them."""
    codec_level: int | None
    look_closer: bool
    """Whether every batch has to come to `apply`."""
    timestamp_after_max_ms: int

    @classmethod
    def of(cls, config: TopicConfig) -> AppendRules:
        is_append_time = config.message_timestamp_type == "LogAppendTime"
        rules = RecordRules(
            is_compacted="compact" in config.cleanup_policy,
            timestamp_type=TimestampType.LOG_APPEND_TIME if is_append_time else TimestampType.CREATE_TIME,
            timestamp_before_max_ms=config.message_timestamp_before_max_ms,
            timestamp_after_max_ms=config.message_timestamp_after_max_ms,
        )
        codec = None if config.compression_type == _PRODUCER else _CODECS[config.compression_type]
        levels = {
            Codec.GZIP: config.compression_gzip_level,
            Codec.LZ4: config.compression_lz4_level,
            Codec.ZSTD: config.compression_zstd_level,
        }
        return cls(
            message_bytes_max=config.max_message_bytes,
            segment_bytes=config.segment_bytes,
            records=rules,
            codec=codec,
            codec_level=None if codec is None else levels.get(codec),
            look_closer=(
                rules.is_compacted
                or is_append_time
                or codec is not None
                or config.message_timestamp_before_max_ms != _INT64_MAX
            ),
            timestamp_after_max_ms=_INT64_MAX if is_append_time else config.message_timestamp_after_max_ms,
        )

    def refusal(self, records: memoryview, partition: str) -> KafkaError:
        """Why a batch is refused whose base offset, size or checksum is wrong."""
        header = parse_header(records)
        if header.base_offset:
            return KafkaError(
                ErrorCode.INVALID_RECORD,
                f"The baseOffset of the record batch in the append to {partition} should be 0, but it is "
                f"{header.base_offset}",
            )
        if len(records) > self.message_bytes_max:
            return KafkaError(ErrorCode.MESSAGE_TOO_LARGE, self.too_large(len(records)))
        try:
            check_crc(records, header)
        except KafkaError as error:
            return error
        raise AssertionError("the batch is not to be refused")

    def apply(self, records: memoryview, now_ms: int) -> tuple[memoryview, int, int]:
        """Check the batch and make of it what the topic wants: the batch to write, its largest timestamp, and
        the log append time (-1 if records keep their own)."""
        header = parse_header(records)
        validate_header(header)
        rules = self.records
        max_timestamp = header.max_timestamp
        try:
            if header.record_count > len(records):
                validate_record_count(records)
            if rules.need_records(header, now_ms):
                max_timestamp = validate_records(records, rules, now_ms)
            if self.codec is not None and self.codec != header.codec:
                records = memoryview(bytearray(recompress(records, self.codec, self.codec_level)))
                if len(records) > self.message_bytes_max:
                    raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, self.too_large(len(records)))
        except KafkaError as failure:
            if failure.code is ErrorCode.CORRUPT_MESSAGE:
                # The checksum is right, so sending it again, as that code asks for, would not help.
                raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, failure.message) from None
            raise
        if rules.timestamp_type is TimestampType.LOG_APPEND_TIME:
            stamp_log_append_time(records, now_ms)
            return records, now_ms, now_ms
        stamp_max_timestamp(records, TimestampType.CREATE_TIME, max_timestamp)
        return records, max_timestamp, -1

    def too_large(self, size: int) -> str:
        return (
            f"The record batch size is {size} bytes which exceeds the maximum configured value of "
            f"{self.message_bytes_max}."
        )

    def too_long(self, size: int) -> str:
        return (
            f"Message batch size is {size} bytes which exceeds the maximum configured segment size of "
            f"{self.segment_bytes}."
        )
