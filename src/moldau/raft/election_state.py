"""`quorum-state`: what a member must not forget over a restart: the epoch, its leader, and whom it voted for.

Kafka writes JSON; version 0 with voters fixed by configuration, version 1 with voters kept in the log.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from moldau.log.errors import CorruptFileError
from moldau.raft.voters import KRAFT_VERSION_STATIC, ReplicaKey
from moldau.runtime.interfaces import FileSystem
from moldau.wire.ids import uuid_from_string, uuid_to_string

QUORUM_STATE = "quorum-state"
NO_ONE = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectionState:
    epoch: int = 0
    leader_id: int = NO_ONE
    voted: ReplicaKey | None = None


def encode_election_state(state: ElectionState, kraft_version: int, voters: list[int]) -> bytes:
    """`voters` are for people: Kafka writes them in version 0 and reads them nowhere."""
    voted = state.voted or ReplicaKey(NO_ONE)
    fields: dict[str, Any]
    if kraft_version == KRAFT_VERSION_STATIC:
        fields = {
            "clusterId": "",
            "leaderId": state.leader_id,
            "leaderEpoch": state.epoch,
            "votedId": voted.id,
            "appliedOffset": 0,
            "currentVoters": [{"voterId": id} for id in voters],
            "data_version": 0,
        }
    else:
        fields = {
            "leaderId": state.leader_id,
            "leaderEpoch": state.epoch,
            "votedId": voted.id,
            "votedDirectoryId": uuid_to_string(voted.directory_id),
            "data_version": 1,
        }
    return json.dumps(fields, separators=(",", ":")).encode()


def decode_election_state(data: bytes, path: str) -> ElectionState:
    """Raises CorruptFileError."""
    try:
        fields = json.loads(data)
        version = fields["data_version"]
        if version not in (0, 1):
            raise ValueError(f"unknown data_version {version!r}")
        epoch, leader_id, voted_id = (int(fields[name]) for name in ("leaderEpoch", "leaderId", "votedId"))
        voted = None
        if voted_id != NO_ONE:
            directory_id = fields.get("votedDirectoryId")
            voted = ReplicaKey(voted_id) if not directory_id else _key(voted_id, directory_id)
        return ElectionState(epoch=epoch, leader_id=leader_id, voted=voted)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptFileError(f"malformed {QUORUM_STATE} file {path}: {error}") from None


def read_election_state(files: FileSystem, path: str) -> ElectionState:
    """Epoch 0 without a leader if there is no such file."""
    return decode_election_state(files.read_bytes(path), path) if files.exists(path) else ElectionState()


def _key(id: int, directory_id: str) -> ReplicaKey:
    return ReplicaKey(id, uuid_from_string(directory_id))
