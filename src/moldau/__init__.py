"""Moldau: an event-streaming platform in Python that speaks Apache Kafka at every boundary."""

__version__ = "0.1.0"
