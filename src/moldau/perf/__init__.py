"""The performance laboratory: load for any Kafka cluster, and what is measured of it. `measure/` holds
what is pure; the other modules are the loads, which stand on the client library."""
