"""SASL."""

from moldau.config.option import (
    PER_BROKER,
    Section,
    between,
    boolean,
    class_name,
    double,
    integer,
    long,
    one_of_any_case,
    password,
    short,
    string,
    strings,
)


class Sasl(Section):
    TITLE = "SASL"
    PREFIX = "sasl."

    enabled_mechanisms = strings(
        "sasl.enabled.mechanisms",
        ("GSSAPI",),
        mode=PER_BROKER,
        effect=False,
        doc="The SASL mechanisms that clients may use.",
    )
    mechanism_inter_broker_protocol = string(
        "sasl.mechanism.inter.broker.protocol",
        "GSSAPI",
        mode=PER_BROKER,
        effect=False,
        doc="The SASL mechanism between brokers.",
    )
    jaas_config = password(
        "sasl.jaas.config",
        None,
        mode=PER_BROKER,
        effect=False,
        doc="Login settings in JAAS form, usually per listener and mechanism.",
    )
    server_callback_handler_class = class_name(
        "sasl.server.callback.handler.class",
        None,
        effect=False,
        doc="A Java class that answers the questions of a SASL server.",
    )
    client_callback_handler_class = class_name(
        "sasl.client.callback.handler.class",
        None,
        effect=False,
        doc="A Java class that answers the questions of a SASL client.",
    )
    server_max_receive_size = integer(
        "sasl.server.max.receive.size",
        1 << 19,
        effect=False,
        doc="The largest SASL token that is read from a client before it is authenticated.",
    )
    login_class = class_name(
        "sasl.login.class", None, effect=False, doc="A Java class that logs this node in."
    )
    login_callback_handler_class = class_name(
        "sasl.login.callback.handler.class",
        None,
        effect=False,
        doc="A Java class that answers the questions of a login.",
    )
    login_connect_timeout_ms = integer(
        "sasl.login.connect.timeout.ms",
        None,
        importance="low",
        effect=False,
        doc="How long a connection to a login service may take to come about.",
    )
    login_read_timeout_ms = integer(
        "sasl.login.read.timeout.ms",
        None,
        importance="low",
        effect=False,
        doc="How long an answer of a login service may take.",
    )
    login_retry_backoff_ms = long(
        "sasl.login.retry.backoff.ms",
        100,
        importance="low",
        effect=False,
        doc="First pause before a failed login is tried again.",
    )
    login_retry_backoff_max_ms = long(
        "sasl.login.retry.backoff.max.ms",
        10_000,
        importance="low",
        effect=False,
        doc="Longest pause before a failed login is tried again.",
    )
    login_refresh_window_factor = double(
        "sasl.login.refresh.window.factor",
        0.8,
        mode=PER_BROKER,
        effect=False,
        doc="Share of a credential's life after which it is renewed.",
    )
    login_refresh_window_jitter = double(
        "sasl.login.refresh.window.jitter",
        0.05,
        mode=PER_BROKER,
        effect=False,
        doc="Share by which that moment varies at random.",
    )
    login_refresh_min_period_seconds = short(
        "sasl.login.refresh.min.period.seconds",
        60,
        mode=PER_BROKER,
        effect=False,
        doc="Time that a login thread waits at least before it renews a credential.",
    )
    login_refresh_buffer_seconds = short(
        "sasl.login.refresh.buffer.seconds",
        300,
        mode=PER_BROKER,
        effect=False,
        doc="Time before a credential's end that renewal keeps free.",
    )
    kerberos_service_name = string(
        "sasl.kerberos.service.name",
        None,
        mode=PER_BROKER,
        effect=False,
        doc="The Kerberos service name of the brokers.",
    )
    kerberos_kinit_cmd = string(
        "sasl.kerberos.kinit.cmd",
        "/usr/bin/kinit",
        mode=PER_BROKER,
        effect=False,
        doc="Path of the kinit command.",
    )
    kerberos_ticket_renew_window_factor = double(
        "sasl.kerberos.ticket.renew.window.factor",
        0.8,
        mode=PER_BROKER,
        effect=False,
        doc="Share of a ticket's life after which it is renewed.",
    )
    kerberos_ticket_renew_jitter = double(
        "sasl.kerberos.ticket.renew.jitter",
        0.05,
        mode=PER_BROKER,
        effect=False,
        doc="Share by which that moment varies at random.",
    )
    kerberos_min_time_before_relogin = long(
        "sasl.kerberos.min.time.before.relogin",
        60_000,
        mode=PER_BROKER,
        effect=False,
        doc="The least time between two Kerberos logins.",
    )
    kerberos_principal_to_local_rules = strings(
        "sasl.kerberos.principal.to.local.rules",
        ("DEFAULT",),
        mode=PER_BROKER,
        effect=False,
        doc="Rules that turn Kerberos principals into user names.",
    )
    oauthbearer_jwt_retriever_class = class_name(
        "sasl.oauthbearer.jwt.retriever.class",
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever",
        effect=False,
        doc="A Java class that fetches tokens.",
    )
    oauthbearer_jwt_validator_class = class_name(
        "sasl.oauthbearer.jwt.validator.class",
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator",
        effect=False,
        doc="A Java class that checks tokens.",
    )
    oauthbearer_scope = string(
        "sasl.oauthbearer.scope", None, effect=False, doc="The scope that is asked for with a token."
    )
    oauthbearer_client_credentials_client_id = string(
        "sasl.oauthbearer.client.credentials.client.id",
        None,
        effect=False,
        doc="The client id for fetching tokens.",
    )
    oauthbearer_client_credentials_client_secret = password(
        "sasl.oauthbearer.client.credentials.client.secret",
        None,
        effect=False,
        doc="The client secret for fetching tokens.",
    )
    oauthbearer_assertion_algorithm = string(
        "sasl.oauthbearer.assertion.algorithm",
        "RS256",
        one_of_any_case("ES256", "RS256"),
        effect=False,
        doc="The algorithm that assertions are signed with.",
    )
    oauthbearer_assertion_claim_aud = string(
        "sasl.oauthbearer.assertion.claim.aud",
        None,
        effect=False,
        doc="The audience that an assertion names.",
    )
    oauthbearer_assertion_claim_exp_seconds = integer(
        "sasl.oauthbearer.assertion.claim.exp.seconds",
        300,
        between(0, 86_400),
        importance="low",
        effect=False,
        doc="How long an assertion is valid.",
    )
    oauthbearer_assertion_claim_iss = string(
        "sasl.oauthbearer.assertion.claim.iss", None, effect=False, doc="The issuer that an assertion names."
    )
    oauthbearer_assertion_claim_jti_include = boolean(
        "sasl.oauthbearer.assertion.claim.jti.include",
        False,
        effect=False,
        doc="Whether an assertion gets an id of its own.",
    )
    oauthbearer_assertion_claim_nbf_seconds = integer(
        "sasl.oauthbearer.assertion.claim.nbf.seconds",
        60,
        between(0, 3600),
        importance="low",
        effect=False,
        doc="How far back an assertion's validity begins.",
    )
    oauthbearer_assertion_claim_sub = string(
        "sasl.oauthbearer.assertion.claim.sub", None, effect=False, doc="The subject that an assertion names."
    )
    oauthbearer_assertion_file = string(
        "sasl.oauthbearer.assertion.file", None, effect=False, doc="File of a ready-made assertion."
    )
    oauthbearer_assertion_private_key_file = string(
        "sasl.oauthbearer.assertion.private.key.file",
        None,
        effect=False,
        doc="File of the private key that assertions are signed with.",
    )
    oauthbearer_assertion_private_key_passphrase = password(
        "sasl.oauthbearer.assertion.private.key.passphrase", None, effect=False, doc="Password of that key."
    )
    oauthbearer_assertion_template_file = string(
        "sasl.oauthbearer.assertion.template.file",
        None,
        effect=False,
        doc="File with further claims and headers of assertions.",
    )
    oauthbearer_scope_claim_name = string(
        "sasl.oauthbearer.scope.claim.name",
        "scope",
        importance="low",
        effect=False,
        doc="The claim of a token that holds its scope.",
    )
    oauthbearer_sub_claim_name = string(
        "sasl.oauthbearer.sub.claim.name",
        "sub",
        importance="low",
        effect=False,
        doc="The claim of a token that holds its subject.",
    )
    oauthbearer_token_endpoint_url = string(
        "sasl.oauthbearer.token.endpoint.url", None, effect=False, doc="Where tokens are fetched."
    )
    oauthbearer_jwks_endpoint_url = string(
        "sasl.oauthbearer.jwks.endpoint.url",
        None,
        effect=False,
        doc="Where the keys that tokens are checked with are fetched.",
    )
    oauthbearer_jwks_endpoint_refresh_ms = long(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        3_600_000,
        importance="low",
        effect=False,
        doc="Time between fetches of those keys.",
    )
    oauthbearer_jwks_endpoint_retry_backoff_ms = long(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        100,
        importance="low",
        effect=False,
        doc="First pause before fetching those keys is tried again.",
    )
    oauthbearer_jwks_endpoint_retry_backoff_max_ms = long(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        10_000,
        importance="low",
        effect=False,
        doc="Longest pause before fetching those keys is tried again.",
    )
    oauthbearer_clock_skew_seconds = integer(
        "sasl.oauthbearer.clock.skew.seconds",
        30,
        importance="low",
        effect=False,
        doc="Difference of clocks that is forgiven in the times of a token.",
    )
    oauthbearer_expected_audience = strings(
        "sasl.oauthbearer.expected.audience",
        (),
        importance="low",
        effect=False,
        doc="Audiences of which a token has to name one.",
    )
    oauthbearer_expected_issuer = string(
        "sasl.oauthbearer.expected.issuer",
        None,
        importance="low",
        effect=False,
        doc="The issuer that a token has to name.",
    )
