"""Apache Kafka on this machine: its jars fetched through Maven, its server run, its command-line tools run.

Answers for finding Java, for one shared copy of the jars under `.java/` and for the life of server
processes. Used by the benchmarks and by the interop tests. Heap and collector are those of Kafka's own
start scripts, server settings those of the `server.properties` it ships with.
"""

from __future__ import annotations

import fcntl
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from bench import frames

REPOSITORY = Path(__file__).resolve().parent.parent
POM = Path(__file__).with_name("pom.xml")
_found_version = re.search(r"<kafka\.version>(.+)</kafka\.version>", POM.read_text())
assert _found_version, "bench/pom.xml names no kafka.version"
VERSION = _found_version.group(1)
LIBS = REPOSITORY / ".java" / f"kafka-{VERSION}" / "libs"
STREAMS_POM = Path(__file__).with_name("streams-pom.xml")
STREAMS_LIBS = LIBS.with_name("streams-libs")

SERVER_OPTIONS = [
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15",
    "-Djava.awt.headless=true",
]
TOOL_OPTIONS = ["-Xmx512M", *SERVER_OPTIONS[2:]]

_LOG4J = """\
rootLogger.level = {level}
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = {target}
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = [%d] %p %m (%c)%n
"""


class JavaMissing(Exception):
    """Java, Maven or what they should fetch is not there; the message says which and what to do."""


def java_missing() -> str | None:
    """Why Kafka's server and tools cannot run here, or None (the jars may still have to be fetched)."""
    if shutil.which("java") is None:
        return "no `java` on the PATH: install a JDK, 17 or later (e.g. openjdk-17-jdk-headless)"
    if not LIBS.is_dir() and shutil.which("mvn") is None:
        return f"no `mvn` on the PATH, needed once to fetch Apache Kafka {VERSION}: install Maven"
    return None


def kafka_classpath() -> str:
    """The class path of Apache Kafka's server and tools, fetched on first use; raises JavaMissing."""
    if missing := java_missing():
        raise JavaMissing(missing)
    _fetch(POM, LIBS)
    return f"{LIBS}/*"


def streams_classpath() -> str:
    """As `kafka_classpath`, with Kafka Streams."""
    classpath = kafka_classpath()
    _fetch(STREAMS_POM, STREAMS_LIBS, "-DincludeArtifactIds=kafka-streams,rocksdbjni")
    return f"{classpath}:{STREAMS_LIBS}/*"


def java_command(main_class: str, *args: str, classpath: str | None = None) -> list[str]:
    """How to run one of Kafka's tools, or a `.java` source file given by its path."""
    classpath = classpath or kafka_classpath()
    logging = _logging(LIBS.parent / "tools-log4j2.properties", "WARN", "SYSTEM_ERR")
    return ["java", *TOOL_OPTIONS, logging, "-cp", classpath, main_class, *args]


def java_tool(main_class: str, *args: str, timeout_s: float = 300) -> subprocess.CompletedProcess[str]:
    """Run what `java_command` says to its end. The exit code is the caller's to judge."""
    command = java_command(main_class, *args)
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)


class KafkaServer:
    """A combined broker and controller whose log directory is `data_dir`, listening on 127.0.0.1.

    A directory that holds a `meta.properties` is taken as it is, with the node id it names; any other is
    formatted first. Properties and the server's output live beside it, in `<data_dir>.conf`. Also a
    context manager.
    """

    def __init__(
        self, data_dir: Path, *, port: int | None = None, properties: Mapping[str, str] | None = None
    ) -> None:
        self.data_dir = data_dir
        self.port = port or free_port()
        self._controller_port = free_port()
        self.bootstrap = f"127.0.0.1:{self.port}"
        self.conf_dir = data_dir.with_name(data_dir.name + ".conf")
        self.output = self.conf_dir / "server.log"
        self._properties = dict(properties or {})
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None, "the server is not running"
        return self._process.pid

    def format(self, cluster_id: str = "bW9sZGF1LWJlbmNoLS0tMQ") -> None:
        """What `kafka-storage format --standalone` does; nothing when the directory is formatted already."""
        config = self._write_properties()
        if (self.data_dir / "meta.properties").exists():
            return
        arguments = ["format", "--cluster-id", cluster_id, "--config", str(config)]
        if "controller.quorum.voters" not in self._properties:
            arguments.append("--standalone")
        done = java_tool("kafka.tools.StorageTool", *arguments)
        if done.returncode:
            raise RuntimeError(f"kafka-storage format failed:\n{done.stdout}{done.stderr}")

    def launch(self) -> None:
        """Start the process without waiting until it answers (`wait_ready` does)."""
        assert self._process is None, "the server is already running"
        self.format()
        logging = _logging(self.conf_dir / "log4j2.properties", "INFO", "SYSTEM_OUT")
        command = ["java", *SERVER_OPTIONS, logging, "-cp", kafka_classpath()]
        command += ["kafka.Kafka", str(self._write_properties())]
        with self.output.open("ab") as output:
            self._process = subprocess.Popen(command, stdout=output, stderr=output, stdin=subprocess.DEVNULL)

    def start(self, timeout_s: float = 60) -> None:
        """Start the process and wait until it answers as a broker."""
        self.launch()
        try:
            self.wait_ready(timeout_s)
        except BaseException:
            self.kill()
            raise

    def wait_ready(self, timeout_s: float = 60) -> None:
        assert self._process is not None, "the server is not running"
        wait_ready(self.bootstrap, self._process, self.output, timeout_s)

    def stop(self, timeout_s: float = 60) -> None:
        """A clean stop: SIGTERM, and wait for the end."""
        self._end(signal.SIGTERM, timeout_s)

    def kill(self) -> None:
        """A crash: SIGKILL."""
        self._end(signal.SIGKILL, 30)

    def __enter__(self) -> KafkaServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _end(self, how: signal.Signals, timeout_s: float) -> None:
        process, self._process = self._process, None
        if process is not None:
            end_process(process, how, timeout_s)

    def _write_properties(self) -> Path:
        self.data_dir.mkdir(parents=True, exist_ok=True)
        self.conf_dir.mkdir(parents=True, exist_ok=True)
        controller = self._controller_port
        properties = {
            "process.roles": "broker,controller",
            "node.id": self._node_id(),
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": str(self.data_dir),
            "num.network.threads": "3",
            "num.io.threads": "8",
            "socket.send.buffer.bytes": "102400",
            "socket.receive.buffer.bytes": "102400",
            "num.partitions": "1",
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
        } | self._properties
        if "controller.quorum.voters" not in self._properties:
            properties.setdefault("controller.quorum.bootstrap.servers", f"127.0.0.1:{controller}")
        path = self.conf_dir / "server.properties"
        path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        return path

    def _node_id(self) -> str:
        meta = self.data_dir / "meta.properties"
        found = re.search(r"^node\.id=(\d+)", meta.read_text(), re.MULTILINE) if meta.exists() else None
        return found.group(1) if found else "1"


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def wait_ready(bootstrap: str, process: subprocess.Popen[bytes], output: Path, timeout_s: float) -> None:
    """Until a Metadata request is answered with a live broker, or the process ends early."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"the broker ended with code {process.returncode}:\n{_tail(output)}")
        try:
            with frames.connect(bootstrap, timeout_s=5) as sock:
                if frames.described(bytes(frames.call(sock, frames.metadata(None)))).brokers > 0:
                    return
        except OSError:
            pass  # not listening, or not answering, yet
        time.sleep(0.02)
    raise TimeoutError(f"no broker at {bootstrap} after {timeout_s:.0f} s:\n{_tail(output)}")


def end_process(process: subprocess.Popen[bytes], how: signal.Signals, timeout_s: float) -> None:
    """Signal a process of ours and wait; one that does not end in time is killed, which is an error."""
    if process.poll() is None:
        process.send_signal(how)
    try:
        process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise TimeoutError(f"process {process.pid} did not end {timeout_s:.0f} s after {how.name}") from None


def _fetch(pom: Path, libs: Path, *options: str) -> None:
    if libs.is_dir():
        return
    libs.parent.mkdir(parents=True, exist_ok=True)
    with (libs.parent / "fetch.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # parallel test workers: one fetches, the others find it done
        if libs.is_dir():
            return
        partial = libs.with_name(f"{libs.name}.partial")
        command = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"]
        command += ["-DincludeScope=runtime", f"-DoutputDirectory={partial}", *options]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise JavaMissing(f"Maven could not fetch Apache Kafka {VERSION}:\n{done.stdout[-2000:]}")
        partial.rename(libs)


def _logging(path: Path, level: str, target: str) -> str:
    text = _LOG4J.format(level=level, target=target)
    if not path.exists() or path.read_text() != text:
        path.write_text(text)
    return f"-Dlog4j2.configurationFile={path}"


def _tail(output: Path, size: int = 3000) -> str:
    return output.read_text(errors="replace")[-size:] if output.exists() else ""
