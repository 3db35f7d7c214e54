"""Any requests in any order, from producers that retry, lag behind and take over: what must always hold.

The model knows what each producer was told. It does not know the rules.
"""

from __future__ import annotations

from random import Random

import pytest

from moldau.txn.shard import TimedOut
from moldau.txn.transaction import EPOCH_MAX, Markers, Transaction, TransactionState
from moldau.wire.errors import ErrorCode as E
from tests.txn.txn_driver import TxnDriver

S = TransactionState
IDS = ("a", "b")
PARTITIONS = [("t", index) for index in range(4)] + [("__consumer_offsets", 3)]
STEPS = 300
_NEXT = {
    S.EMPTY: {S.EMPTY, S.ONGOING, S.PREPARE_ABORT},
    S.ONGOING: {S.ONGOING, S.PREPARE_COMMIT, S.PREPARE_ABORT},
    S.PREPARE_COMMIT: {S.COMPLETE_COMMIT},
    S.PREPARE_ABORT: {S.COMPLETE_ABORT},
    S.COMPLETE_COMMIT: {S.EMPTY, S.ONGOING, S.PREPARE_ABORT},
    S.COMPLETE_ABORT: {S.EMPTY, S.ONGOING, S.PREPARE_ABORT},
}


class Story:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.version = self.random.choice((0, 1, 2, 2))
        self.driver = TxnDriver(
            self.version,
            transactional_id_expiration_ms=3_600_000,
            transaction_two_phase_commit_enable=self.random.random() < 0.5,
        )
        # All that was ever given out for an id, and some that never was.
        self.given: dict[str, list[tuple[int, int]]] = {each: [(-1, -1), (9, 9)] for each in IDS}
        self.latest: dict[str, tuple[int, int]] = {}
        self.outcomes: dict[tuple[str, int, int], bool] = {}  # by producer id and epoch of the markers
        self.answered: list[tuple[str, bool, tuple[int, int]]] = []
        if self.random.random() < 0.5:
            for each in IDS:
                self.driver.put(Transaction(50 + IDS.index(each), EPOCH_MAX - 4, 1, 0), each)

    def step(self) -> None:
        before = {each: self.driver.shard.transaction(each) for each in IDS}
        written = len(self.driver.log)
        self.random.choices(
            (self.init, self.add, self.end, self.complete, self.wait, self.reload, self.fail),
            (3, 6, 5, 4, 1, 0.3, 0.5),
        )[0]()
        self.check_sent()
        if len(self.driver.log) > written:
            for each in IDS:
                self.check_change(each, before[each])

    # ------------------------------------------------------------ what happens

    def producer(self, each: str) -> tuple[int, int]:
        """Mostly the one that began last."""
        if each in self.latest and self.random.random() < 0.7:
            return self.latest[each]
        return self.random.choice(self.given[each])

    def told(self, each: str, producer: tuple[int, int]) -> None:
        self.given[each].append(producer)
        self.latest[each] = producer

    def init(self) -> None:
        each = self.random.choice(IDS)
        expected = self.producer(each) if self.random.random() < 0.4 else (-1, -1)
        keep = self.version > 0 and self.random.random() < 0.3
        given = self.driver.init(
            expected,
            timeout_ms=self.random.choice((1, 60_000)),
            two_phase=self.random.random() < 0.3,
            keep=keep,
            transactional_id=each,
        )
        if isinstance(given, E):
            assert given in (E.CONCURRENT_TRANSACTIONS, E.PRODUCER_FENCED)
            return
        found = self.driver.shard.transaction(each)
        assert found is not None and found.client == given[:2]
        if keep and given[2] >= 0:
            assert found.state is S.ONGOING
            assert (found.producer_id, found.producer_epoch) == given[2:]
        else:
            assert found.state is S.EMPTY
        if expected == (-1, -1):
            assert given[:2] not in self.given[each], "whoever had it is not fenced"
        self.told(each, given[:2])

    def add(self) -> None:
        each = self.random.choice(IDS)
        producer = self.producer(each)
        chosen = self.random.sample(PARTITIONS, self.random.randrange(1, 4))
        verify = self.random.random() < 0.3
        version = 2 if self.version and self.random.random() < 0.7 else 0
        errors = self.driver.add(producer, *chosen, verify=verify, version=version, transactional_id=each)
        found = self.driver.shard.transaction(each)
        if errors == E.NONE:
            assert found is not None and found.state is S.ONGOING and found.client == producer
            assert found.partitions.issuperset(chosen)

    def end(self) -> None:
        each = self.random.choice(IDS)
        producer, commit = self.producer(each), self.random.random() < 0.6
        version = 2 if self.version == 2 and self.random.random() < 0.8 else 0
        written = len(self.driver.log)
        given = self.driver.end(producer, commit=commit, version=version, transactional_id=each)
        if isinstance(given, E):
            assert given in (
                E.CONCURRENT_TRANSACTIONS,
                E.INVALID_PRODUCER_ID_MAPPING,
                E.INVALID_TXN_STATE,
                E.PRODUCER_FENCED,
            )
            return
        found = self.driver.shard.transaction(each)
        assert found is not None
        # Whoever is told that it went well is told of the outcome that there is.
        assert found.state in (
            (S.PREPARE_COMMIT, S.COMPLETE_COMMIT) if commit else (S.PREPARE_ABORT, S.COMPLETE_ABORT)
        )
        if version == 2 and len(self.driver.log) > written:
            assert given not in self.given[each], "what is late would be part of the next transaction"
        self.told(each, given)

    def complete(self) -> None:
        self.driver.complete()

    def wait(self) -> None:
        self.driver.advance(self.random.choice((1, 10_000, 10_000, 4_000_000)))

    def reload(self) -> None:
        self.driver.reload()

    def fail(self) -> None:
        """Nothing can be written for one request."""
        states = dict(self.driver.shard.transactions())
        self.driver.is_disk_full = True
        each = self.random.choice(IDS)
        producer = self.producer(each)
        self.driver.init(transactional_id=each)
        self.driver.add(producer, transactional_id=each, version=self.version)
        self.driver.end(producer, transactional_id=each, version=self.version)
        self.driver.is_disk_full = False
        assert dict(self.driver.shard.transactions()) == states

    # ------------------------------------------------------------ what must hold

    def check_sent(self) -> None:
        for each in [each for each in self.driver.sent if isinstance(each, TimedOut)]:
            self.driver.sent.remove(each)
            found = self.driver.shard.transaction(each.transactional_id)
            assert found is not None and not found.is_two_phase
            self.driver.abort_timed_out(each.transactional_id)
        for markers in self.driver.sent:
            assert isinstance(markers, Markers)
            # A transaction without records may share its epoch with the next one; nothing tells them apart.
            if markers.partitions and markers.transaction_version >= 2:
                key = markers.transactional_id, markers.producer_id, markers.producer_epoch
                assert self.outcomes.setdefault(key, markers.is_committed) == markers.is_committed

    def check_change(self, each: str, before: Transaction | None) -> None:
        after = self.driver.shard.transaction(each)
        if before is None or after is None or after == before:
            assert after is not None or before is None or before.is_expired(self.driver.now_ms, 3_600_000)
            return
        steps = _NEXT[before.state]
        allowed = steps | {later for state in steps for later in _NEXT[state]}  # a timeout comes in between
        assert after.state in allowed
        if before.producer_id == after.producer_id:
            assert after.producer_epoch >= before.producer_epoch
        if before.client[0] == after.client[0]:
            assert after.client[1] >= before.client[1]
        else:
            assert after.client[1] <= 1, "a new producer id begins at 0"
        if before.state in (S.PREPARE_COMMIT, S.PREPARE_ABORT):
            assert after.producer_epoch in (before.producer_epoch, 0, before.next_producer_epoch)
        assert after.producer_epoch <= EPOCH_MAX
        if after.state in (S.EMPTY, S.ONGOING):
            assert after.client[1] < EPOCH_MAX, "no epoch is left to fence it with"

    def check_replay(self) -> None:
        """The log says all that is, but for what a later version of its records says."""
        replayed = dict(self.driver.replayed().transactions())
        live = dict(self.driver.shard.transactions())
        assert replayed.keys() == live.keys()
        for each, transaction in live.items():
            expected = transaction._replace(last_producer_epoch=-1)
            if self.version == 0:
                expected = expected._replace(client_version=0, previous_producer_id=-1, next_producer_id=-1)
            assert replayed[each] == expected


@pytest.mark.parametrize("block", range(8))
def test_transactions_are_decided_once_and_epochs_only_rise(block: int) -> None:
    for seed in range(block * 25, block * 25 + 25):
        story = Story(seed)
        try:
            for _ in range(STEPS):
                story.step()
            story.check_replay()
        except BaseException as failure:
            failure.add_note(f"seed {seed}")
            raise
