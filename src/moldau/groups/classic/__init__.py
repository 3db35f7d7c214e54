"""Classic groups: members agree on a protocol, a leader among them assigns, the coordinator keeps them
in step."""
