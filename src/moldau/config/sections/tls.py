"""TLS, by the names that begin with ssl."""

from moldau.config.option import PER_BROKER, Section, boolean, class_name, one_of, password, string, strings


class Ssl(Section):
    TITLE = "TLS"
    PREFIX = "ssl."

    client_auth = string(
        "ssl.client.auth",
        "none",
        one_of("required", "requested", "none"),
        mode=PER_BROKER,
        effect=False,
        doc="Whether clients have to show a certificate: required, requested or none.",
    )
    principal_mapping_rules = string(
        "ssl.principal.mapping.rules",
        "DEFAULT",
        importance="low",
        effect=False,
        doc="Rules that turn a certificate's subject into a user name.",
    )
    allow_dn_changes = boolean(
        "ssl.allow.dn.changes",
        False,
        importance="low",
        effect=False,
        doc="Whether a replaced certificate may have another subject.",
    )
    allow_san_changes = boolean(
        "ssl.allow.san.changes",
        False,
        importance="low",
        effect=False,
        doc="Whether a replaced certificate may have other alternative names.",
    )
    protocol = string(
        "ssl.protocol", "TLSv1.3", mode=PER_BROKER, effect=False, doc="The TLS version for new contexts."
    )
    provider = string(
        "ssl.provider", None, mode=PER_BROKER, effect=False, doc="The Java security provider for TLS."
    )
    enabled_protocols = strings(
        "ssl.enabled.protocols",
        ("TLSv1.2", "TLSv1.3"),
        mode=PER_BROKER,
        effect=False,
        doc="The TLS versions that are accepted.",
    )
    cipher_suites = strings(
        "ssl.cipher.suites",
        (),
        mode=PER_BROKER,
        effect=False,
        doc="The cipher suites that are accepted; all of the TLS library's if empty.",
    )
    keystore_type = string(
        "ssl.keystore.type",
        "JKS",
        mode=PER_BROKER,
        effect=False,
        doc="Format of the key store: JKS, PKCS12 or PEM.",
    )
    keystore_location = string(
        "ssl.keystore.location", None, mode=PER_BROKER, effect=False, doc="File of the key store."
    )
    keystore_password = password(
        "ssl.keystore.password", None, mode=PER_BROKER, effect=False, doc="Password of the key store."
    )
    key_password = password(
        "ssl.key.password", None, mode=PER_BROKER, effect=False, doc="Password of the private key."
    )
    keystore_key = password(
        "ssl.keystore.key", None, mode=PER_BROKER, effect=False, doc="The private key itself, as PEM."
    )
    keystore_certificate_chain = password(
        "ssl.keystore.certificate.chain",
        None,
        mode=PER_BROKER,
        effect=False,
        doc="The certificate chain itself, as PEM.",
    )
    truststore_type = string(
        "ssl.truststore.type",
        "JKS",
        mode=PER_BROKER,
        effect=False,
        doc="Format of the trust store: JKS, PKCS12 or PEM.",
    )
    truststore_location = string(
        "ssl.truststore.location", None, mode=PER_BROKER, effect=False, doc="File of the trust store."
    )
    truststore_password = password(
        "ssl.truststore.password", None, mode=PER_BROKER, effect=False, doc="Password of the trust store."
    )
    truststore_certificates = password(
        "ssl.truststore.certificates",
        None,
        mode=PER_BROKER,
        effect=False,
        doc="The trusted certificates themselves, as PEM.",
    )
    keymanager_algorithm = string(
        "ssl.keymanager.algorithm",
        "SunX509",
        mode=PER_BROKER,
        effect=False,
        doc="The Java algorithm that chooses keys.",
    )
    trustmanager_algorithm = string(
        "ssl.trustmanager.algorithm",
        "PKIX",
        mode=PER_BROKER,
        effect=False,
        doc="The Java algorithm that checks trust.",
    )
    endpoint_identification_algorithm = string(
        "ssl.endpoint.identification.algorithm",
        "https",
        mode=PER_BROKER,
        importance="low",
        effect=False,
        doc="How the name of a server is checked against its certificate; empty for not at all.",
    )
    secure_random_implementation = string(
        "ssl.secure.random.implementation",
        None,
        mode=PER_BROKER,
        importance="low",
        effect=False,
        doc="The Java source of randomness for TLS.",
    )
    engine_factory_class = class_name(
        "ssl.engine.factory.class",
        None,
        mode=PER_BROKER,
        importance="low",
        effect=False,
        doc="A Java class that makes TLS engines.",
    )
