"""One connection to one broker: requests go out as they come, responses are matched to them in order.

Answerable for framing, the ApiVersions negotiation, correlation ids, the bound on requests in flight and the
time a request may take. It knows nothing of clusters, leaders or retries.

Invariants: the broker answers a connection's requests in their order, so the oldest pending request owns the
next response. A connection that failed in any way (lost, timed out, broke the protocol) is closed and stays
closed, and every pending request gets that same error. All failures are `KafkaError`.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import NamedTuple, TypeAlias, TypeVar

from moldau import __version__
from moldau.runtime.interfaces import Buffer, Network, Stream
from moldau.wire.api import ApiKey, camel_name, request_type
from moldau.wire.codec import ProtocolError, UnsupportedFieldError, decode, decode_whole, encode, read_uvarint
from moldau.wire.errors import ErrorCode, KafkaError, error_code
from moldau.wire.headers import response_is_flexible, write_request_header
from moldau.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from moldau.wire.schema import Message, Versions

R = TypeVar("R", bound=Message)

REQUEST_TIMEOUT_S = 30.0
CONNECT_TIMEOUT_S = 10.0
IN_FLIGHT_MAX = 5
# A fetch may answer with more than it was asked for (one batch always fits), but never with this much.
RESPONSE_BYTES_MAX = 256 << 20
CLIENT_SOFTWARE = "moldau"

_READ_BYTES = 64 << 10
_READS_PER_WAKEUP = 16  # so that one fast broker leaves turns for the others
_BUFFERS_PER_SEND = 64
_SIZE = struct.Struct(">i")
_ERROR_CODE = struct.Struct(">h")


OnSent: TypeAlias = Callable[[KafkaError | None], None]
OnAnswer: TypeAlias = Callable[[Buffer, int, KafkaError | None], None]
"""Called once: with the response and where its body starts, or with what there was instead of one."""


class _Pending(NamedTuple):
    correlation_id: int
    key: ApiKey
    version: int
    deadline: float | None  # of the loop's time; None where the one who asks has a time of its own
    on_answer: OnAnswer


class Connection:
    """Made by `connect`. Usable by many tasks at once."""

    def __init__(self, stream: Stream, *, client_id: str, request_timeout_s: float) -> None:
        self._stream = stream
        self._client_id = client_id
        self._request_timeout_s = request_timeout_s
        self._loop = asyncio.get_running_loop()
        self._slots = asyncio.Semaphore(IN_FLIGHT_MAX)
        self._pending: deque[_Pending] = deque()
        self._outgoing: deque[memoryview] = deque()
        self._queued_bytes = self._sent_bytes = 0  # of all time
        self._posts: deque[tuple[int, OnSent]] = deque()  # and who waits until how many of them are sent
        self._correlation_id = 0
        self._failure: KafkaError | None = None
        self._frames = _FrameReader()
        self._versions: dict[int, Versions] = {}
        self._overdue: asyncio.TimerHandle | None = None
        self._on_closed: list[Callable[[], None]] = []
        self.features: dict[str, int] = {}
        """The features that the cluster has settled on, and their levels."""
        self.peer = host_and_port(stream.peer_host, stream.peer_port)
        stream.watch_readable(self._on_readable)

    @property
    def is_closed(self) -> bool:
        return self._failure is not None

    def supports(self, key: ApiKey) -> bool:
        """Whether there is a version of this API that both sides know."""
        common = self._common_versions(key)
        return common.first <= common.last

    def version_of(self, key: ApiKey, last: int | None = None) -> int:
        """The newest version both sides know, not above `last`. Raises UNSUPPORTED_VERSION."""
        common = self._common_versions(key)
        version = common.last if last is None else min(common.last, last)
        if version < common.first:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"{self.peer} and this client have no version of {camel_name(key)} in common",
            )
        return version

    async def request(
        self,
        message: Message,
        response: type[R],
        *,
        version: int | None = None,
        timeout_s: float | None = None,
    ) -> R:
        """Send `message` and wait for its response; `timeout_s` includes the wait for a free slot."""
        key = ApiKey(message.API_KEY)
        version = self.version_of(key) if version is None else version
        timeout_s = self._request_timeout_s if timeout_s is None else timeout_s
        try:
            async with asyncio.timeout(timeout_s), self._slots:
                frame, position = await self._send(key, version, message)
        except TimeoutError:
            error = KafkaError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"{self.peer} did not answer {camel_name(key)} within {timeout_s:g} s",
            )
            # Whatever follows on this connection would wait behind the answer that does not come.
            self._fail(error)
            raise error from None
        return self._decode(response, version, frame, position)

    def submit(
        self,
        key: ApiKey,
        version: int,
        body: Sequence[Buffer],
        on_answer: OnAnswer,
        *,
        timeout_s: float | None = None,
    ) -> int:
        """Send a request whose body is encoded already, without a task or a future; the size of its frame.

        The buffers are not copied, and must not change until the answer. How many requests are in flight is
        the caller's concern. Raises the failure of a connection that is closed, and calls nobody then.
        """
        if self._failure is not None:
            raise self._failure
        frame, size = self._frame_around(key, version, body)
        timeout_s = self._request_timeout_s if timeout_s is None else timeout_s
        deadline = self._loop.time() + timeout_s
        self._pending.append(_Pending(self._correlation_id, key, version, deadline, on_answer))
        if self._overdue is None:
            self._overdue = self._loop.call_at(deadline, self._on_overdue)
        self._write(frame)
        return size

    def post(self, key: ApiKey, version: int, body: Sequence[Buffer], on_sent: OnSent) -> int:
        """As `submit`, for a request that has no response (a produce with acks=0): `on_sent` is called when
        the kernel took it."""
        if self._failure is not None:
            raise self._failure
        frame, size = self._frame_around(key, version, body)
        self._posts.append((self._queued_bytes + size, on_sent))
        self._write(frame)
        return size

    def watch_closed(self, callback: Callable[[], None]) -> None:
        """Call back when the connection fails or is closed; never at once."""
        self._on_closed.append(callback)

    def close(self) -> None:
        self._fail(KafkaError(ErrorCode.NETWORK_EXCEPTION, f"the connection to {self.peer} was closed"))

    async def negotiate(self) -> None:
        """Learn what the broker speaks. A broker that does not know our version of the question says so in
        version 0, and lists there which versions it knows."""
        version = ApiVersionsRequest.VERSIONS.last
        message = ApiVersionsRequest(
            client_software_name=CLIENT_SOFTWARE, client_software_version=__version__
        )
        while True:
            frame, position = await self._ask_versions(version, message)
            unsupported = (
                len(frame) >= position + 2
                and _ERROR_CODE.unpack_from(frame, position)[0] == ErrorCode.UNSUPPORTED_VERSION
            )
            if not unsupported or version == 0:
                break
            version = self._older_version(frame, position, version)
        response = self._decode(ApiVersionsResponse, version, frame, position)
        if response.error_code:
            error = KafkaError(error_code(response.error_code), f"{self.peer} refused ApiVersions")
            self._fail(error)
            raise error
        self._versions = {
            api.api_key: Versions(api.min_version, api.max_version) for api in response.api_keys
        }
        self.features = {feature.name: feature.max_version_level for feature in response.finalized_features}

    async def _ask_versions(self, version: int, message: Message) -> tuple[Buffer, int]:
        try:
            async with asyncio.timeout(self._request_timeout_s):
                return await self._send(ApiKey.API_VERSIONS, version, message)
        except TimeoutError:
            error = KafkaError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"{self.peer} did not answer ApiVersions within {self._request_timeout_s:g} s",
            )
            self._fail(error)
            raise error from None

    def _older_version(self, frame: Buffer, position: int, version: int) -> int:
        """The next version to ask with; always below `version`, so that the question comes to an end."""
        response = self._decode(ApiVersionsResponse, 0, frame, position)
        for api in response.api_keys:
            if api.api_key == ApiKey.API_VERSIONS and 0 <= api.max_version < version:
                return api.max_version
        return 0

    def _common_versions(self, key: ApiKey) -> Versions:
        theirs = self._versions.get(key)
        ours = request_type(key).VERSIONS
        if theirs is None:
            return Versions(1, 0)
        return Versions(max(ours.first, theirs.first), min(ours.last, theirs.last))

    async def _send(self, key: ApiKey, version: int, message: Message) -> tuple[Buffer, int]:
        if self._failure is not None:
            raise self._failure
        correlation_id = self._next_correlation_id()
        frame = self._frame(key, version, message, correlation_id)
        answer: asyncio.Future[tuple[Buffer, int]] = self._loop.create_future()

        def on_answer(frame: Buffer, position: int, error: KafkaError | None) -> None:
            if answer.done():  # the one who asked may have gone
                return
            if error is None:
                answer.set_result((frame, position))
            else:
                answer.set_exception(error)

        self._pending.append(_Pending(correlation_id, key, version, None, on_answer))
        self._write([frame])
        return await answer

    def _next_correlation_id(self) -> int:
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        return self._correlation_id

    def _frame(self, key: ApiKey, version: int, message: Message, correlation_id: int) -> bytearray:
        frame = bytearray(4)
        frame += write_request_header(key, version, correlation_id, self._client_id)
        try:
            encode(message, version, frame)
        except UnsupportedFieldError as error:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION, f"{self.peer} speaks {camel_name(key)} v{version}: {error}"
            ) from None
        _SIZE.pack_into(frame, 0, len(frame) - 4)
        return frame

    def _frame_around(self, key: ApiKey, version: int, body: Sequence[Buffer]) -> tuple[list[Buffer], int]:
        head = bytearray(4)
        head += write_request_header(key, version, self._next_correlation_id(), self._client_id)
        size = len(head) + sum(map(len, body))
        _SIZE.pack_into(head, 0, size - 4)
        return [head, *body], size

    def _on_overdue(self) -> None:
        """The oldest request has had its time, or it had been answered and another one is the oldest."""
        self._overdue = None
        deadline = next((each.deadline for each in self._pending if each.deadline is not None), None)
        if deadline is None:
            return
        if deadline > self._loop.time():
            self._overdue = self._loop.call_at(deadline, self._on_overdue)
            return
        self._fail(KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"{self.peer} did not answer in time"))

    def _write(self, frame: Sequence[Buffer]) -> None:
        if self._failure is not None:
            raise self._failure
        is_idle = not self._outgoing
        self._outgoing.extend(map(memoryview, frame))
        self._queued_bytes += sum(map(len, frame))
        if is_idle:
            self._on_writable()

    def _on_writable(self) -> None:
        try:
            while self._outgoing:
                self._drop_sent(self._stream.send(list(islice(self._outgoing, _BUFFERS_PER_SEND))))
            self._stream.watch_writable(None)
        except BlockingIOError:
            self._stream.watch_writable(self._on_writable)
        except OSError as error:
            self._lost(error)

    def _drop_sent(self, count: int) -> None:
        self._sent_bytes += count
        while self._posts and self._posts[0][0] <= self._sent_bytes:
            self._posts.popleft()[1](None)
        while count:
            first = self._outgoing[0]
            if count < len(first):
                self._outgoing[0] = first[count:]
                return
            count -= len(first)
            self._outgoing.popleft()
        while self._outgoing and not len(self._outgoing[0]):
            self._outgoing.popleft()

    def _on_readable(self) -> None:
        try:
            for _ in range(_READS_PER_WAKEUP):
                if not self._frames.read_from(self._stream):
                    self._lost(None)
                    return
                while (frame := self._frames.next_frame()) is not None:
                    self._on_response(frame)
                    if self._failure is not None:
                        return
        except BlockingIOError:
            return
        except OSError as error:
            self._lost(error)
        except ProtocolError as error:
            self._breach(error)

    def _on_response(self, frame: memoryview) -> None:
        if len(frame) < 4:
            raise ProtocolError("a response is shorter than its header")
        (correlation_id,) = _SIZE.unpack_from(frame)
        if not self._pending or self._pending[0].correlation_id != correlation_id:
            raise ProtocolError(f"an answer to request {correlation_id}, which is not the oldest one")
        pending = self._pending.popleft()
        position = 4
        flexible = pending.version in request_type(pending.key).FLEXIBLE
        if response_is_flexible(pending.key, pending.version, flexible):
            position = _skip_header_tags(frame)
        pending.on_answer(frame, position, None)

    def _decode(self, response: type[R], version: int, frame: Buffer, position: int) -> R:
        try:
            if response is ApiVersionsResponse:
                # Brokers newer than us may append to what they answer to an older question.
                return decode(response, version, frame, position)[0]
            return decode_whole(response, version, frame[position:])
        except ProtocolError as error:
            raise self._breach(error) from None

    def _breach(self, error: ProtocolError) -> KafkaError:
        failure = KafkaError(ErrorCode.NETWORK_EXCEPTION, f"{self.peer} does not speak Kafka: {error}")
        self._fail(failure)
        return failure

    def _lost(self, error: OSError | None) -> None:
        reason = f"{self.peer} closed the connection"
        if error is not None:
            reason = f"lost the connection to {self.peer}: {error.strerror or error}"
        self._fail(KafkaError(ErrorCode.NETWORK_EXCEPTION, reason))

    def _fail(self, error: KafkaError) -> None:
        if self._failure is not None:
            return
        self._failure = error
        self._stream.close()
        self._outgoing.clear()
        if self._overdue is not None:
            self._overdue.cancel()
            self._overdue = None
        while self._pending:
            self._pending.popleft().on_answer(b"", 0, error)
        while self._posts:
            self._posts.popleft()[1](error)
        for callback in self._on_closed:
            callback()
        self._on_closed.clear()


async def connect(
    network: Network,
    host: str,
    port: int,
    *,
    client_id: str = CLIENT_SOFTWARE,
    connect_timeout_s: float = CONNECT_TIMEOUT_S,
    request_timeout_s: float = REQUEST_TIMEOUT_S,
) -> Connection:
    """Connect and negotiate versions. A host that cannot be reached is NETWORK_EXCEPTION."""
    try:
        async with asyncio.timeout(connect_timeout_s):
            stream = await network.connect(host, port)
    except TimeoutError:
        reason = f"no connection to {host_and_port(host, port)} within {connect_timeout_s:g} s"
        raise KafkaError(ErrorCode.NETWORK_EXCEPTION, reason) from None
    except OSError as error:
        # The loops have words of their own for this one.
        cause = "connection refused" if isinstance(error, ConnectionRefusedError) else error.strerror or error
        reason = f"cannot connect to {host_and_port(host, port)}: {cause}"
        raise KafkaError(ErrorCode.NETWORK_EXCEPTION, reason) from None
    connection = Connection(stream, client_id=client_id, request_timeout_s=request_timeout_s)
    try:
        await connection.negotiate()
    except KafkaError as error:
        connection.close()
        # What a listener for TLS, or another service, makes of our first request is no explanation.
        raise KafkaError(error.code, f"{error.message} (is it a plaintext listener of Kafka's?)") from None
    except BaseException:
        connection.close()
        raise
    return connection


def host_and_port(host: str, port: int) -> str:
    """As a bootstrap list has it: an IPv6 address goes in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class _FrameReader:
    """Cuts what was received into frames.

    Small frames are cut out of one staging buffer; the rest of a large one is received right where it stays,
    so that the records of a fetch are never moved again.
    """

    def __init__(self) -> None:
        self._staging = bytearray(_READ_BYTES)
        self._begin = 0
        self._end = 0
        self._frame: bytearray | None = None  # a frame that did not fit into what had been received
        self._filled = 0

    def read_from(self, stream: Stream) -> int:
        """Bytes received; 0 at the end of the stream."""
        if self._frame is not None:
            received = stream.recv_into(memoryview(self._frame)[self._filled :])
            self._filled += received
            return received
        if self._begin:
            rest = self._staging[self._begin : self._end]
            self._staging[: len(rest)] = rest
            self._begin, self._end = 0, len(rest)
        received = stream.recv_into(memoryview(self._staging)[self._end :])
        self._end += received
        return received

    def next_frame(self) -> memoryview | None:
        """The next whole frame without its size, if it is there."""
        if self._frame is not None:
            if self._filled < len(self._frame):
                return None
            frame, self._frame = self._frame, None
            return memoryview(frame)
        available = self._end - self._begin
        if available < 4:
            return None
        (size,) = _SIZE.unpack_from(self._staging, self._begin)
        if not 0 <= size <= RESPONSE_BYTES_MAX:
            raise ProtocolError(f"a response of {size} bytes")
        start = self._begin + 4
        here = min(size, available - 4)
        frame = bytearray(size)
        frame[:here] = memoryview(self._staging)[start : start + here]
        self._begin = start + here
        if here < size:
            self._frame, self._filled = frame, here
            return None
        return memoryview(frame)


def _skip_header_tags(frame: memoryview) -> int:
    try:
        count, position = read_uvarint(frame, 4)
        for _ in range(count):
            _, position = read_uvarint(frame, position)
            size, position = read_uvarint(frame, position)
            position += size
    except IndexError:
        raise ProtocolError("a response is shorter than its header") from None
    return position
