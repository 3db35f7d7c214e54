"""The options of a share consumer."""

from __future__ import annotations

from moldau.config.option import REQUIRED, Section, at_least, boolean, integer, one_of_any_case, string


class ShareConsumerConfig(Section):
    TITLE = "Share consumer"

    group_id = string(
        "group.id", REQUIRED, importance="high", doc="The share group that the consumer is a member of."
    )
    share_acknowledgement_mode = string(
        "share.acknowledgement.mode",
        "implicit",
        one_of_any_case("IMPLICIT", "EXPLICIT"),
        doc="implicit: to poll again accepts what came before; explicit: each record is to be acknowledged.",
    )
    max_poll_records = integer("max.poll.records", 500, at_least(1), doc="The most records of one `poll`.")
    fetch_min_bytes = integer(
        "fetch.min.bytes", 1, at_least(0), importance="high", doc="A fetch waits until there is so much,"
    )
    fetch_max_wait_ms = integer(
        "fetch.max.wait.ms", 500, at_least(0), importance="low", doc="or until so much time has passed."
    )
    fetch_max_bytes = integer("fetch.max.bytes", 50 << 20, at_least(0), doc="The most bytes of one fetch.")
    client_rack = string("client.rack", "", importance="low", doc="Where the client is.")
    check_crcs = boolean("check.crcs", True, importance="low", doc="Whether to check checksums of batches.")
    default_api_timeout_ms = integer(
        "default.api.timeout.ms", 60_000, at_least(0), doc="How long calls wait that are given no other time."
    )

    @property
    def is_implicit(self) -> bool:
        return self.share_acknowledgement_mode.lower() == "implicit"
