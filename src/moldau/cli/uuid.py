"""`moldau uuid`: a fresh id in Kafka's notation."""

from __future__ import annotations

from random import SystemRandom

import click

from moldau.wire.ids import random_uuid, uuid_to_string


@click.command("uuid", help="Print a random id, such as a cluster needs.")
def command() -> None:
    click.echo(uuid_to_string(random_uuid(SystemRandom())))
