"""What the machines of share partitions see of the world. The node keeps it up to date."""

from __future__ import annotations

from dataclasses import dataclass

from moldau.config.broker import BrokerConfig
from moldau.metadata.image import ClusterImage


@dataclass(slots=True, kw_only=True)
class ShareEnvironment:
    config: BrokerConfig
    image: ClusterImage
