"""Epochs and votes, for one voter and for three."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.log.errors import CorruptFileError
from moldau.raft.election import (
    AskForVotes,
    BecomeLeader,
    Campaign,
    Candidate,
    Election,
    Leader,
    Persist,
    Unattached,
    VoteGranted,
)
from moldau.raft.election_state import ElectionState, decode_election_state, encode_election_state
from moldau.raft.voters import ReplicaKey, Voter, VoterSet, voter_set, voters_record
from moldau.wire.ids import Uuid

GOLDEN = Path(__file__).parent / "golden"
ME = ReplicaKey(1, Uuid(b"D" * 16))


def voters(*ids: int) -> VoterSet:
    return VoterSet(Voter(key=ReplicaKey(id)) for id in ids)


def test_a_single_voter_votes_for_itself_durably_and_leads_the_next_epoch() -> None:
    election = Election(ME, voters(1), ElectionState(epoch=4, leader_id=1))
    assert election.step(Campaign(log_epoch=4)) == [
        Persist(state=ElectionState(epoch=5, voted=ME)),
        Persist(state=ElectionState(epoch=5, leader_id=1)),
        BecomeLeader(epoch=5, granted_by=(1,)),
    ]
    assert election.role == Leader(granted_by=frozenset({1}))


def test_the_epoch_goes_on_from_the_log_if_the_state_was_lost() -> None:
    election = Election(ME, voters(1), ElectionState())
    election.step(Campaign(log_epoch=7))
    assert election.epoch == 8


def test_one_of_three_needs_another_vote() -> None:
    election = Election(ME, voters(1, 2, 3), ElectionState(epoch=1))
    assert election.step(Campaign(log_epoch=1)) == [
        Persist(state=ElectionState(epoch=2, voted=ME)),
        AskForVotes(epoch=2, voters=(2, 3)),
    ]
    assert isinstance(election.role, Candidate)
    assert election.step(VoteGranted(epoch=1, voter_id=2)) == []
    assert election.step(VoteGranted(epoch=2, voter_id=9)) == []
    effects = election.step(VoteGranted(epoch=2, voter_id=3))
    assert effects[-1] == BecomeLeader(epoch=2, granted_by=(1, 3))


def test_who_is_no_voter_does_not_campaign() -> None:
    election = Election(ME, voters(2), ElectionState(epoch=1))
    assert election.step(Campaign(log_epoch=1)) == []
    assert election.role == Unattached()


def test_another_directory_is_another_voter() -> None:
    dynamic = VoterSet([Voter(key=ReplicaKey(1, Uuid(b"E" * 16)))])
    assert not dynamic.has(ME)
    assert dynamic.has(ReplicaKey(1))
    assert voters(1).has(ME)


@given(
    st.lists(
        st.sampled_from(
            [Campaign(log_epoch=0), *(VoteGranted(epoch=e, voter_id=v) for e in (1, 2, 3) for v in (1, 2, 3))]
        )
    )
)
def test_the_epoch_never_goes_back_and_leaders_have_a_majority(events: list[Campaign | VoteGranted]) -> None:
    election = Election(ME, voters(1, 2, 3), ElectionState())
    led = set()
    for event in events:
        before = election.epoch
        for effect in election.step(event):
            if isinstance(effect, BecomeLeader):
                assert effect.epoch not in led and len(effect.granted_by) >= 2
                led.add(effect.epoch)
        assert election.epoch >= before


def test_the_state_file_is_what_kafka_wrote() -> None:
    data = (GOLDEN / "quorum-state").read_bytes()
    state = decode_election_state(data, "quorum-state")
    assert state == ElectionState(epoch=1, leader_id=1)
    assert encode_election_state(state, 0, [1]) == data


def test_a_vote_comes_back_from_both_versions() -> None:
    state = ElectionState(epoch=3, voted=ME)
    assert decode_election_state(encode_election_state(state, 1, []), "x") == state
    static = decode_election_state(encode_election_state(state, 0, [1]), "x")
    assert static == ElectionState(epoch=3, voted=ReplicaKey(1))
    assert json.loads(encode_election_state(state, 1, []))["data_version"] == 1


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{}", b'{"data_version":2}', b"\xff", b'{"data_version":1,"leaderId":"x"}']
)
def test_a_damaged_state_file_is_said_to_be_one(data: bytes) -> None:
    with pytest.raises(CorruptFileError):
        decode_election_state(data, "quorum-state")


def test_voters_come_back_from_their_record() -> None:
    original = VoterSet([Voter(key=ME), Voter(key=ReplicaKey(2), kraft_versions=(0, 1))])
    assert voter_set(voters_record(original)) == original
