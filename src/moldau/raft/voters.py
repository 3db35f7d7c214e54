"""Who votes in the metadata quorum: fixed by configuration, or kept in the log itself (KIP-853)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from moldau.wire.ids import ZERO_UUID, Uuid
from moldau.wire.messages import control_records

KRAFT_VERSION_STATIC = 0
"""Voters come from `controller.quorum.voters` and have no directory ids."""
KRAFT_VERSION_DYNAMIC = 1
"""Voters come from control records in the log and its snapshots."""


class ReplicaKey(NamedTuple):
    """A member of the quorum. A directory id of zeros is one that is not known."""

    id: int
    directory_id: Uuid = ZERO_UUID


class VoterEndpoint(NamedTuple):
    name: str
    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Voter:
    key: ReplicaKey
    endpoints: tuple[VoterEndpoint, ...] = ()
    kraft_versions: tuple[int, int] = (KRAFT_VERSION_STATIC, KRAFT_VERSION_DYNAMIC)


class VoterSet(Mapping[int, Voter]):
    """Voters by id, in the order of their ids."""

    __slots__ = ("_voters",)

    def __init__(self, voters: Iterable[Voter] = ()) -> None:
        self._voters = {voter.key.id: voter for voter in sorted(voters, key=lambda voter: voter.key)}

    def __getitem__(self, id: int) -> Voter:
        return self._voters[id]

    def __iter__(self) -> Iterator[int]:
        return iter(self._voters)

    def __len__(self) -> int:
        return len(self._voters)

    def __repr__(self) -> str:
        return f"VoterSet({list(self._voters.values())!r})"

    def has(self, key: ReplicaKey) -> bool:
        """An unknown directory id, on either side, fits any."""
        voter = self._voters.get(key.id)
        if voter is None:
            return False
        return ZERO_UUID in (voter.key.directory_id, key.directory_id) or voter.key == key

    @property
    def majority(self) -> int:
        return len(self._voters) // 2 + 1


def voters_record(voters: VoterSet) -> control_records.VotersRecord:
    return control_records.VotersRecord(
        voters=[
            control_records.VotersRecordVoter(
                voter_id=voter.key.id,
                voter_directory_id=voter.key.directory_id,
                endpoints=[
                    control_records.Endpoint(name=name, host=host, port=port)
                    for name, host, port in voter.endpoints
                ],
                k_raft_version_feature=control_records.KRaftVersionFeature(
                    min_supported_version=voter.kraft_versions[0],
                    max_supported_version=voter.kraft_versions[1],
                ),
            )
            for voter in voters.values()
        ]
    )


def voter_set(record: control_records.VotersRecord) -> VoterSet:
    return VoterSet(
        Voter(
            key=ReplicaKey(voter.voter_id, voter.voter_directory_id),
            endpoints=tuple(VoterEndpoint(end.name, end.host, end.port) for end in voter.endpoints),
            kraft_versions=(
                voter.k_raft_version_feature.min_supported_version,
                voter.k_raft_version_feature.max_supported_version,
            ),
        )
        for voter in record.voters
    )
