"""Incremental fetch sessions against the rules of KIP-227."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.replica.fetch_session import FetchSessionCache
from moldau.wire.errors import ErrorCode, KafkaError
from moldau.wire.fetch import FetchPartition, FetchRequest, PartitionHead

EVICT_AFTER_MS = 1000


def partition(number: int, offset: int = 0, topic: bytes = b"t") -> FetchPartition:
    return FetchPartition(topic, number, -1, offset, -1, -1, 1_000_000)


def request(
    asked=(), *, session_id: int = 0, epoch: int = 0, forgotten=(), replica_id: int = -1
) -> FetchRequest:
    return FetchRequest(replica_id, 0, 0, 1 << 30, 0, session_id, epoch, list(asked), list(forgotten), "")


class Sessions:
    def __init__(self, slots: int = 10) -> None:
        self.cache = FetchSessionCache(slots, EVICT_AFTER_MS, Random(3))
        self.now_ms = 0

    def fetch(self, *arguments, by_topic_id: bool = False, **options):
        asked = request(*arguments, **options)
        return self.cache.open(asked, "reader", "localhost", by_topic_id=by_topic_id, now_ms=self.now_ms)

    def start(self, count: int = 1, **options) -> int:
        return self.fetch([partition(number) for number in range(count)], **options).session_id

    def is_alive(self, session_id: int) -> bool:
        # An epoch that cannot be right tells whether the session is there, and changes nothing.
        with pytest.raises(KafkaError) as caught:
            self.fetch(session_id=session_id, epoch=77)
        return caught.value.code == ErrorCode.INVALID_FETCH_SESSION_EPOCH


def refusal(sessions: Sessions, **options) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        sessions.fetch(**options)
    return caught.value.code


# ---------------------------------------------------------------- which partitions a request is about


def test_a_full_request_starts_a_session_and_reads_what_it_names():
    sessions = Sessions()
    context = sessions.fetch([partition(0), partition(1)])
    assert context.partitions == [partition(0), partition(1)]
    assert context.session_id > 0
    assert not context.incremental
    assert (len(sessions.cache), sessions.cache.partition_count()) == (1, 2)


def test_an_incremental_request_names_only_changes():
    sessions = Sessions()
    id_ = sessions.start(3)
    context = sessions.fetch([partition(1, 50), partition(9)], session_id=id_, epoch=1, forgotten=[(b"t", 0)])
    assert context.incremental
    assert context.session_id == id_
    assert context.partitions == [partition(1, 50), partition(2), partition(9)]
    assert sessions.fetch(session_id=id_, epoch=2).partitions == context.partitions


def test_a_final_request_ends_the_session_and_starts_none():
    sessions = Sessions()
    id_ = sessions.start()
    context = sessions.fetch([partition(0)], session_id=id_, epoch=-1)
    assert (context.partitions, context.session_id) == ([partition(0)], 0)
    assert len(sessions.cache) == 0


def test_a_full_request_that_names_a_session_replaces_it():
    sessions = Sessions()
    old = sessions.start()
    new = sessions.fetch([partition(4)], session_id=old, epoch=0).session_id
    assert new not in (0, old)
    assert len(sessions.cache) == 1


def test_a_session_without_partitions_is_over():
    sessions = Sessions()
    id_ = sessions.start()
    context = sessions.fetch(session_id=id_, epoch=1, forgotten=[(b"t", 0)])
    assert (context.partitions, context.session_id, len(sessions.cache)) == ([], 0, 0)
    assert sessions.fetch([]).session_id > 0, "but one may begin without, and be told later"


def test_a_partition_that_had_its_turn_waits_behind_the_others():
    sessions = Sessions()
    context = sessions.fetch([partition(0), partition(1), partition(2)])
    context.session.move_to_end((b"t", 0))
    again = sessions.fetch(session_id=context.session_id, epoch=1)
    assert [asked.partition for asked in again.partitions] == [1, 2, 0]


# ---------------------------------------------------------------- epochs and errors


def test_each_request_moves_the_epoch_by_one():
    sessions = Sessions()
    id_ = sessions.start()
    for epoch in range(1, 5):
        assert sessions.fetch(session_id=id_, epoch=epoch).session_id == id_
        assert refusal(sessions, session_id=id_, epoch=epoch) == ErrorCode.INVALID_FETCH_SESSION_EPOCH
        assert refusal(sessions, session_id=id_, epoch=epoch + 2) == ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_the_epoch_after_the_last_is_the_first():
    sessions = Sessions()
    context = sessions.fetch([partition(0)])
    context.session.epoch = 2**31 - 1
    sessions.fetch(session_id=context.session_id, epoch=2**31 - 1)
    assert sessions.fetch(session_id=context.session_id, epoch=1).session_id == context.session_id


def test_an_unknown_session_and_a_change_between_names_and_ids_are_refused():
    sessions = Sessions()
    assert refusal(sessions, session_id=1, epoch=1) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    by_name = sessions.start()
    by_id = sessions.start(by_topic_id=True)
    for id_, other in ((by_name, True), (by_id, False)):
        code = refusal(sessions, session_id=id_, epoch=1, by_topic_id=other)
        assert code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        assert sessions.fetch(session_id=id_, epoch=1, by_topic_id=not other).session_id == id_


# ---------------------------------------------------------------- what is news


def test_what_was_told_is_not_told_again():
    sessions = Sessions()
    asked = sessions.fetch([partition(0)]).session.partitions[b"t", 0]
    head = PartitionHead(0, 0, high_watermark=5, last_stable_offset=5, log_start_offset=0)
    assert asked.is_news(head, 0)
    assert not asked.is_news(head, 0)
    assert asked.is_news(head, 100), "records are always news"
    assert asked.is_news(head._replace(high_watermark=6), 0)
    assert not asked.is_news(head._replace(high_watermark=6), 0)
    assert asked.is_news(head._replace(high_watermark=6, log_start_offset=2), 0)
    assert not asked.is_news(head._replace(high_watermark=6, log_start_offset=2), 0)
    assert not asked.is_news(head._replace(high_watermark=6, log_start_offset=2, last_stable_offset=1), 0)


@pytest.mark.parametrize(
    "change", [{"error_code": 6}, {"preferred_read_replica": 2}, {"diverging_epoch": (3, 40)}]
)
def test_errors_redirections_and_divergence_are_always_told(change: dict):
    sessions = Sessions()
    asked = sessions.fetch([partition(0)]).session.partitions[b"t", 0]
    head = PartitionHead(0, 0, 5, 5, 0)
    asked.is_news(head, 0)
    for _ in range(2):
        assert asked.is_news(head._replace(**change), 0)
    # After an error the same numbers are news once more: the client has to learn that it is over.
    assert asked.is_news(head, 0) == ("error_code" in change)
    assert not asked.is_news(head, 0)


# ---------------------------------------------------------------- a full cache


def test_a_full_cache_refuses_a_session_but_answers():
    sessions = Sessions(slots=1)
    first = sessions.start(5)
    context = sessions.fetch([partition(0)])
    assert (context.session_id, context.partitions) == (0, [partition(0)])
    assert sessions.is_alive(first)
    assert Sessions(slots=0).start() == 0


def test_a_session_that_was_long_unused_gives_way():
    sessions = Sessions(slots=2)
    unused, used = sessions.start(5), sessions.start(5)
    sessions.now_ms = EVICT_AFTER_MS
    sessions.fetch(session_id=used, epoch=1)
    assert sessions.start(1) == 0, "not for longer than allowed"
    sessions.now_ms += 1
    assert sessions.start(1) > 0
    assert (sessions.is_alive(unused), sessions.is_alive(used)) == (False, True)
    assert sessions.cache.evictions_total == 1


def test_a_smaller_session_gives_way_once_it_has_had_its_time():
    sessions = Sessions(slots=2)
    small, large = sessions.start(2), sessions.start(3)
    assert sessions.start(9) == 0, "both are new"
    sessions.now_ms = EVICT_AFTER_MS + 1
    for id_ in (small, large):
        sessions.fetch(session_id=id_, epoch=1)
    assert sessions.start(2) == 0, "the smallest is not smaller"
    assert sessions.start(3) > 0
    assert (sessions.is_alive(small), sessions.is_alive(large)) == (False, True)


def test_a_follower_takes_the_place_of_any_consumer_and_a_consumer_never_that_of_a_follower():
    sessions = Sessions(slots=2)
    consumers = [sessions.start(50), sessions.start(60)]
    followers = [sessions.start(1, replica_id=1), sessions.start(1, replica_id=2)]
    assert all(followers)
    assert not any(sessions.is_alive(id_) for id_ in consumers)
    assert sessions.start(100, replica_id=3) == 0, "followers among each other have their time"
    sessions.now_ms = EVICT_AFTER_MS + 1
    for id_ in followers:
        sessions.fetch(session_id=id_, epoch=1)
    assert sessions.start(100) == 0
    assert sessions.start(100, replica_id=3) > 0


# ---------------------------------------------------------------- against an obvious model


@given(random=st.randoms(use_true_random=True))
def test_client_and_broker_agree_on_the_partitions(random: Random):
    """The client keeps its own list, tells only the differences, and sometimes loses the session."""
    sessions = Sessions(slots=random.randrange(1, 3))
    wanted: dict[int, int] = {}
    told: dict[int, int] = {}
    session_id = epoch = 0
    for _ in range(random.randrange(1, 25)):
        sessions.now_ms += random.choice([0, 1, EVICT_AFTER_MS])
        for number in random.sample(range(6), random.randrange(4)):
            if random.random() < 0.3:
                wanted.pop(number, None)
            else:
                wanted[number] = random.randrange(100)
        if random.random() < 0.2:
            sessions.start(random.randrange(1, 8), replica_id=random.choice([-1, 4]))
        if session_id == 0:
            context = sessions.fetch([partition(n, o) for n, o in wanted.items()])
        else:
            changes = [partition(n, o) for n, o in wanted.items() if told.get(n) != o]
            gone = [(b"t", n) for n in told if n not in wanted]
            try:
                context = sessions.fetch(changes, session_id=session_id, epoch=epoch, forgotten=gone)
            except KafkaError as error:
                assert error.code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
                session_id, told = 0, {}
                continue
        assert {asked.partition: asked.fetch_offset for asked in context.partitions} == wanted
        assert len(sessions.cache) <= 2
        session_id, epoch = context.session_id, epoch + 1 if context.incremental else 1
        told = dict(wanted) if session_id else {}
