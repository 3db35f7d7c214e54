"""Transactions of 100 records over five partitions: the cost of a transaction, and how many there can be.

Java clients do them in their own way: one at a time, and after each a pause when the broker still writes the
markers of the last. Below the clients, connections with ready-made frames keep as many transactions under way
as there are connections. A broker that is not done with a producer's last transaction says so, and is asked
again.
"""

from __future__ import annotations

import json
import re
import select
import socket
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from bench import frames, group_frames, procfs, topics, transaction_frames
from bench.kafka import java_tool
from bench.loads import Sample, Subject, Unshared, child, child_arguments, topic_of

PARTITIONS = 5
RECORDS = 100
RECORD_BYTES = 100
_JAVA = Path(__file__).parent.parent / "java" / "TransactionPerf.java"
_DONE = re.compile(r"^transactions=\d+ seconds=\S+ transactions/s=(\S+)$", re.MULTILINE)
_RETRY_S = 0.001
_NOT_YET = (*topics.NOT_YET, *group_frames.NOT_HERE_YET, transaction_frames.CONCURRENT_TRANSACTIONS)


@dataclass(frozen=True, slots=True, kw_only=True)
class JavaTransactions(Unshared):
    """`kind` is what TransactionPerf.java takes. CPU is that of the broker, of warm-up and filling too."""

    name: str
    kind: str
    clients: int
    transactions: int
    needs_java: bool = True
    on_stub: bool = False

    def run(self, subject: Subject, scale: float) -> Sample:
        broker = subject.running
        each = max(1, int(self.transactions * scale) // self.clients)
        warm_up = max(1, each // 4)
        with (
            topic_of(broker, f"{self.name}-source", PARTITIONS) as source,
            topic_of(broker, f"{self.name}-target", PARTITIONS) as target,
        ):
            cpu_before = broker.cpu_seconds()
            done = java_tool(
                *(str(_JAVA), self.kind, broker.bootstrap, source, target, str(PARTITIONS)),
                *(str(self.clients), str(each), str(warm_up), str(RECORDS)),
            )
            cpu_s = broker.cpu_seconds() - cpu_before
        found = _DONE.search(done.stdout)
        if done.returncode or found is None:
            raise RuntimeError(f"TransactionPerf failed:\n{done.stdout[-1500:]}{done.stderr[-1500:]}")
        count = (each + warm_up) * self.clients
        return {"transactions_per_s": float(found.group(1)), "cpu_s_per_1k": cpu_s / count * 1000}


@dataclass(frozen=True, slots=True, kw_only=True)
class Transactions(Unshared):
    """Ready-made frames; with `offsets`, each transaction commits one too."""

    name: str
    connections: int
    transactions: int
    offsets: bool
    needs_java: bool = False
    on_stub: bool = False

    def run(self, subject: Subject, scale: float) -> Sample:
        broker = subject.running
        with topic_of(broker, self.name, PARTITIONS) as topic:
            return child(
                "transactions",
                bootstrap=broker.bootstrap,
                topic=topic,
                pid=broker.pid,
                connections=self.connections,
                transactions=int(self.transactions * scale),
                offsets=self.offsets,
            )


def generate(
    bootstrap: str, topic: str, *, pid: int, connections: int, transactions: int, offsets: bool
) -> Sample:
    """A quarter more go first, untimed."""
    with ExitStack() as stack:
        clients = []
        for number in range(connections):
            sock = stack.enter_context(frames.connect(bootstrap, timeout_s=None))
            clients.append(_Client(sock, f"{topic}-{number}", topic, offsets=offsets))
        exchange = _Exchange(clients)
        exchange.run(max(1, transactions // 4))
        cpu_before, own_before, started = procfs.cpu_seconds(pid), time.process_time(), time.monotonic()
        asked_again = sum(client.asked_again for client in clients)
        exchange.run(transactions)
        elapsed = time.monotonic() - started
        own_s, cpu_s = time.process_time() - own_before, procfs.cpu_seconds(pid) - cpu_before
    return {
        "transactions_per_s": transactions / elapsed,
        "cpu_s_per_1k": cpu_s / transactions * 1000,
        "asked_again": (sum(client.asked_again for client in clients) - asked_again) / transactions,
        "generator_busy": own_s / elapsed,
    }


class _Client:
    """One producer: its records, an offset if there is to be one, and the end, one request after another."""

    def __init__(self, sock: socket.socket, name: str, topic: str, *, offsets: bool) -> None:
        self.sock = sock
        self.asked_again = 0
        self._name = name
        self._topic = topic
        self._steps = ["produce", "offset", "end"] if offsets else ["produce", "end"]
        values = [bytes(RECORD_BYTES)] * (RECORDS // PARTITIONS)
        batch = transaction_frames.transactional_batch(values, int(time.time() * 1000))
        self._batches = [batch] * PARTITIONS
        self._request = b""
        self._step = 0
        self._producer = self._taken_over()

    def _taken_over(self, timeout_s: float = 60) -> transaction_frames.Producer:
        """The first to ask for a coordinator brings the topic of transactions into being."""
        deadline = time.monotonic() + timeout_s
        for request in (
            transaction_frames.find_coordinator(self._name),
            transaction_frames.init_producer_id(self._name),
        ):
            while error := transaction_frames.first_error(answer := frames.call(self.sock, request)):
                if error not in _NOT_YET or time.monotonic() > deadline:
                    raise frames.BrokerAnswered("InitProducerId", error)
                time.sleep(0.02)
        return transaction_frames.producer_of(answer)

    def begin(self) -> None:
        self._step = 0
        transaction_frames.stamp(self._batches[0], self._producer)
        self._send(transaction_frames.produce(self._name, self._topic, self._batches))

    def _send(self, request: bytes) -> None:
        self._request = request
        self.sock.sendall(request)

    def again(self) -> None:
        self.asked_again += 1
        self.sock.sendall(self._request)

    def on_answer(self) -> str:
        """ "done" with the transaction, "going on", or to be asked "again" a little later."""
        answer = frames.receive(self.sock)
        step = self._steps[self._step]
        if step == "produce":
            error = transaction_frames.produce_error(answer, self._topic, PARTITIONS)
        elif step == "offset":
            error = transaction_frames.offset_commit_error(answer, self._topic)
        else:
            error = transaction_frames.first_error(answer)
        if error in _NOT_YET:
            return "again"
        if error:
            raise frames.BrokerAnswered(step, error)
        if step == "end":
            self._producer = transaction_frames.producer_of(answer)
            return "done"
        self._step += 1
        if self._steps[self._step] == "offset":
            group = f"{self._name}-group"
            self._send(
                transaction_frames.offset_commit(self._name, self._producer, group, self._topic, 0, 1000)
            )
        else:
            self._send(transaction_frames.end(self._name, self._producer))
        return "going on"


class _Exchange:
    """Transactions of all clients, from one thread."""

    def __init__(self, clients: list[_Client]) -> None:
        self._clients = {client.sock.fileno(): client for client in clients}

    def run(self, transactions: int) -> None:
        clients = self._clients
        unbegun = undone = transactions
        waiting: list[tuple[float, _Client]] = []
        with select.epoll() as poll:
            for number, client in clients.items():
                poll.register(number, select.EPOLLIN)
                if unbegun:
                    client.begin()
                    unbegun -= 1
            while undone:
                ready = poll.poll(_RETRY_S if waiting else 30)
                if not ready and not waiting:
                    raise TimeoutError("no answer for 30 s")
                now = time.monotonic()
                while waiting and waiting[0][0] <= now:
                    waiting.pop(0)[1].again()
                for number, _ in ready:
                    client = clients[number]
                    outcome = client.on_answer()
                    if outcome == "again":
                        waiting.append((time.monotonic() + _RETRY_S, client))
                    elif outcome == "done":
                        undone -= 1
                        if unbegun:
                            client.begin()
                            unbegun -= 1


if __name__ == "__main__":
    print(json.dumps(generate(**child_arguments())))  # type: ignore[arg-type]
