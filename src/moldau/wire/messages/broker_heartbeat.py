"""BrokerHeartbeat (API key 63), versions 0-2."""

from __future__ import annotations

from moldau.wire.ids import Uuid
from moldau.wire.schema import UUID, Message, array, boolean, int16, int32, int64


class BrokerHeartbeatRequest(Message, api_key=63, versions="0-2", flexible="0+"):
    broker_id: int = int32("0+")
    broker_epoch: int = int64("0+", default=-1)
    current_metadata_offset: int = int64("0+")
    want_fence: bool = boolean("0+")
    want_shut_down: bool = boolean("0+")
    offline_log_dirs: list[Uuid] = array(UUID, "1+", tag=0, tagged="1+")
    cordoned_log_dirs: list[Uuid] | None = array(UUID, "2+", nullable="2+", default=None, tag=1, tagged="2+")


class BrokerHeartbeatResponse(Message, api_key=63, versions="0-2", flexible="0+"):
    throttle_time_ms: int = int32("0+", default=0)
    error_code: int = int16("0+", default=0)
    is_caught_up: bool = boolean("0+", default=False)
    is_fenced: bool = boolean("0+", default=True)
    should_shut_down: bool = boolean("0+")
