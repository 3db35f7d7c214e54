"""Principals, authorization and delegation tokens."""

from moldau.config.option import PER_BROKER, Section, at_least, class_name, long, password, string


class Security(Section):
    TITLE = "Security"

    authorizer_class_name = string(
        "authorizer.class.name",
        "",
        importance="low",
        effect=False,
        doc="A Java class that decides what a principal may do; empty for no restrictions.",
    )
    principal_builder_class = class_name(
        "principal.builder.class",
        "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
        mode=PER_BROKER,
        effect=False,
        doc="A Java class that turns an authenticated connection into a principal.",
    )
    security_providers = string(
        "security.providers",
        None,
        importance="low",
        effect=False,
        doc="Java classes that provide security algorithms.",
    )
    connections_max_reauth_ms = long(
        "connections.max.reauth.ms",
        0,
        effect=False,
        doc="A SASL client has to authenticate again after so long; 0 for never.",
    )
    delegation_token_secret_key = password(
        "delegation.token.secret.key",
        None,
        effect=False,
        doc="The secret that delegation tokens are signed with, the same on all nodes; none means no tokens.",
    )
    delegation_token_max_lifetime_ms = long(
        "delegation.token.max.lifetime.ms",
        604_800_000,
        at_least(1),
        effect=False,
        doc="A delegation token cannot be renewed past this age.",
    )
    delegation_token_expiry_time_ms = long(
        "delegation.token.expiry.time.ms",
        86_400_000,
        at_least(1),
        effect=False,
        doc="A delegation token has to be renewed before it is so old.",
    )
    delegation_token_expiry_check_interval_ms = long(
        "delegation.token.expiry.check.interval.ms",
        3_600_000,
        at_least(1),
        importance="low",
        effect=False,
        doc="Time between looks for delegation tokens to forget.",
    )
