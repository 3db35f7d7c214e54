"""Sockets: acceptor, connections, request and response queues."""
