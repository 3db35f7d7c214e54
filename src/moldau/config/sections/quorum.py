"""The metadata quorum and its log."""

from moldau.config.endpoint import ADDRESSES, VOTERS
from moldau.config.option import Section, at_least, boolean, integer, long, string, strings


class Quorum(Section):
    TITLE = "Metadata quorum"
    PREFIX = "controller.quorum."

    voters = strings(
        "controller.quorum.voters",
        (),
        VOTERS,
        importance="high",
        doc="The fixed set of voters of the metadata quorum, each as id@host:port.",
    )
    bootstrap_servers = strings(
        "controller.quorum.bootstrap.servers",
        (),
        ADDRESSES,
        importance="high",
        doc="Addresses, host:port, where a node finds the metadata quorum when its voters are not fixed.",
    )
    auto_join_enable = boolean(
        "controller.quorum.auto.join.enable",
        False,
        importance="low",
        effect=False,
        doc="Whether a controller that is not a voter asks to become one.",
    )
    election_timeout_ms = integer(
        "controller.quorum.election.timeout.ms",
        1000,
        at_least(0),
        importance="high",
        effect=False,
        doc="A candidate that has not won an election after so long starts another.",
    )
    fetch_timeout_ms = integer(
        "controller.quorum.fetch.timeout.ms",
        2000,
        at_least(0),
        importance="high",
        effect=False,
        doc="A follower that could not fetch from the leader for so long becomes a "
        "candidate; a leader not fetched from by a majority resigns.",
    )
    election_backoff_max_ms = integer(
        "controller.quorum.election.backoff.max.ms",
        1000,
        at_least(0),
        importance="high",
        effect=False,
        doc="The longest random pause before a new election, which keeps candidates out of step.",
    )
    append_linger_ms = integer(
        "controller.quorum.append.linger.ms",
        25,
        at_least(0),
        effect=False,
        doc="How long the leader gathers metadata records before it writes them as one batch.",
    )
    request_timeout_ms = integer(
        "controller.quorum.request.timeout.ms",
        2000,
        at_least(0),
        effect=False,
        doc="How long a member of the quorum waits for an answer from another.",
    )
    retry_backoff_ms = integer(
        "controller.quorum.retry.backoff.ms",
        20,
        at_least(0),
        importance="low",
        effect=False,
        doc="Pause before a failed request to the quorum is repeated.",
    )
    fetch_max_bytes = integer(
        "controller.quorum.fetch.max.bytes",
        1 << 20,
        at_least(1),
        importance="low",
        effect=False,
        doc="The most bytes of the metadata log in one fetch between members of the quorum.",
    )
    fetch_snapshot_max_bytes = integer(
        "controller.quorum.fetch.snapshot.max.bytes",
        1 << 20,
        at_least(1),
        importance="low",
        effect=False,
        doc="The most bytes of a snapshot in one fetch between members of the quorum.",
    )


class MetadataLog(Section):
    TITLE = "Metadata log"
    PREFIX = "metadata."

    log_dir = string(
        "metadata.log.dir",
        None,
        importance="high",
        doc="The directory that holds the metadata log; the first log directory if unset.",
    )
    log_segment_bytes = integer(
        "metadata.log.segment.bytes",
        1 << 30,
        at_least(1 << 23),
        importance="high",
        doc="A segment of the metadata log that would grow past this is closed.",
    )
    log_segment_ms = long(
        "metadata.log.segment.ms",
        604_800_000,
        importance="high",
        doc="A segment of the metadata log older than this is closed.",
    )
    log_max_record_bytes_between_snapshots = long(
        "metadata.log.max.record.bytes.between.snapshots",
        20_971_520,
        at_least(1),
        importance="high",
        doc="Bytes of new metadata records after which a snapshot is written.",
    )
    log_max_snapshot_interval_ms = long(
        "metadata.log.max.snapshot.interval.ms",
        3_600_000,
        at_least(0),
        importance="high",
        doc="The longest time between snapshots while there are new metadata records; 0 for no such limit.",
    )
    max_retention_bytes = long(
        "metadata.max.retention.bytes",
        104_857_600,
        importance="high",
        effect=False,
        doc="The metadata log and its snapshots are trimmed to this size, down to the newest snapshot.",
    )
    max_retention_ms = long(
        "metadata.max.retention.ms",
        604_800_000,
        importance="high",
        effect=False,
        doc="Metadata segments and snapshots older than this are deleted, except the newest snapshot.",
    )
    max_idle_interval_ms = integer(
        "metadata.max.idle.interval.ms",
        500,
        at_least(0),
        importance="low",
        effect=False,
        doc="When idle, the active controller appends a no-op record this often; 0 for never.",
    )
    internal_metadata_log_segment_bytes = integer(
        "internal.metadata.log.segment.bytes",
        None,
        importance="low",
        internal=True,
        effect=False,
        doc="Replaces metadata.log.segment.bytes without its lower bound, for tests.",
    )
    internal_metadata_max_batch_size_in_bytes = integer(
        "internal.metadata.max.batch.size.in.bytes",
        1 << 23,
        importance="low",
        internal=True,
        effect=False,
        doc="The largest batch written to the metadata log.",
    )
    internal_metadata_delete_delay_millis = long(
        "internal.metadata.delete.delay.millis",
        60_000,
        importance="low",
        internal=True,
        effect=False,
        doc="Time between marking a metadata segment or snapshot as deleted and removing its file.",
    )
