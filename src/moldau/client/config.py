"""Options of clients: how a mapping of Kafka's names, or keywords, becomes the sections a client is made
with.

Each option is declared once, in a `Section` as the broker's are (`moldau.config.option`). `ConnectionConfig`
has those that every client shares; a client adds its own section. What is not declared is refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from moldau.config.option import (
    FILLED,
    REQUIRED,
    ConfigError,
    Problem,
    Section,
    at_least,
    integer,
    long,
    one_of_any_case,
    password,
    string,
    strings,
)


class ConnectionConfig(Section):
    TITLE = "Connections"

    bootstrap_servers = strings(
        "bootstrap.servers",
        REQUIRED,
        FILLED,
        importance="high",
        doc="Nodes to find the cluster by, as host:port.",
    )
    client_id = string("client.id", "moldau", doc="What the client calls itself in requests, and in quotas.")
    request_timeout_ms = integer(
        "request.timeout.ms",
        30_000,
        at_least(1),
        doc="How long one request may take. Then its connection is closed.",
    )
    retry_backoff_ms = long(
        "retry.backoff.ms",
        100,
        at_least(0),
        importance="low",
        doc="The pause before the first repetition; it doubles with each one, give or take a fifth.",
    )
    retry_backoff_max_ms = long(
        "retry.backoff.max.ms", 1000, at_least(0), importance="low", doc="The longest such pause."
    )
    reconnect_backoff_ms = long(
        "reconnect.backoff.ms",
        50,
        at_least(0),
        importance="low",
        doc="The pause after a failed connection; it doubles with each failure, give or take a fifth.",
    )
    reconnect_backoff_max_ms = long(
        "reconnect.backoff.max.ms", 1000, at_least(0), importance="low", doc="The longest such pause."
    )
    socket_connection_setup_timeout_ms = long(
        "socket.connection.setup.timeout.ms", 10_000, at_least(1), doc="How long connecting may take."
    )
    metadata_max_age_ms = long(
        "metadata.max.age.ms",
        300_000,
        at_least(0),
        importance="low",
        doc="What is known of a topic is asked anew after this time, even if nothing failed.",
    )
    security_protocol = string(
        "security.protocol",
        "PLAINTEXT",
        one_of_any_case("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        doc="How connections are secured. PLAINTEXT is what this client can do so far.",
    )
    sasl_mechanism = string("sasl.mechanism", None, doc="The SASL mechanism.")
    sasl_jaas_config = password("sasl.jaas.config", None, doc="The login, as Java's clients have it.")
    ssl_truststore_location = string(
        "ssl.truststore.location", None, doc="A PEM file with the certificates to trust."
    )
    ssl_keystore_location = string(
        "ssl.keystore.location", None, doc="A PEM file with the client's certificate and key."
    )
    ssl_key_password = password("ssl.key.password", None, doc="What the client's key is encrypted with.")
    ssl_endpoint_identification_algorithm = string(
        "ssl.endpoint.identification.algorithm",
        "https",
        importance="low",
        doc="https compares the broker's name with its certificate; the empty string does not.",
    )


def parse_config(
    sections: Sequence[type[Section]], config: Mapping[str, Any], keywords: Mapping[str, Any]
) -> list[Section]:
    """The sections that `config` (Kafka's names) and `keywords` (with `_` for `.`) describe.

    Values may be Python's or the texts of a properties file. Raises ConfigError with all that is wrong.
    """
    names = {option.name for section in sections for option in section.OPTIONS}
    by_keyword = {name.replace(".", "_"): name for name in names}
    problems: list[Problem] = []
    texts: dict[str, str] = {}
    given = [*config.items(), *((by_keyword.get(word, word), value) for word, value in keywords.items())]
    for name, value in given:
        if name not in names:
            near = get_close_matches(name.replace("_", "."), names, 1, 0.8)
            hint = f"; did you mean {near[0]}?" if near else ""
            problems.append(Problem(name, f"Unknown configuration {name}{hint}"))
        elif name in texts:
            problems.append(Problem(name, f"Configuration {name} is given twice"))
        elif value is not None:
            texts[name] = _text(value)
    made = [section.parse(texts, problems) for section in sections]
    if problems:
        raise ConfigError(tuple(problems))
    return made


def is_given(section: Section, attribute: str) -> bool:
    """Whether an option has another value than its default."""
    return any(option.attribute == attribute and value != option.default for option, value in section.items())


def check_security(config: ConnectionConfig) -> None:
    """Refuse what the connection layer cannot do, rather than talk in the clear to who was meant to be
    secret."""
    protocol = config.security_protocol.upper()
    if protocol != "PLAINTEXT":
        raise ConfigError.of(
            "security.protocol", f"security.protocol {protocol} is not supported by this client yet"
        )


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return ",".join(str(part) for part in value)
    return str(value)
