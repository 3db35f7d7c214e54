"""The circumstances of one request: who asks, in which version, and whom to turn to."""

from __future__ import annotations

from moldau.groups.group import Client
from moldau.net.connection import Connection
from moldau.server.services import Services


class RequestContext:
    __slots__ = ("connection", "services", "version")

    def __init__(self, services: Services, connection: Connection, version: int) -> None:
        self.services = services
        self.connection = connection
        self.version = version

    @property
    def client(self) -> Client:
        """Who asks, as groups know their members."""
        return Client(self.connection.client_id or "", f"/{self.connection.peer_host}")

    @property
    def client_id(self) -> str | None:
        return self.connection.client_id
