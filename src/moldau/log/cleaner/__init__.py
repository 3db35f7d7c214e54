"""Compaction: keeps the newest record of each key and lets the older ones go, as Apache Kafka's log cleaner
does."""
