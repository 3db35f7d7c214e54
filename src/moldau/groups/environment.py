"""What all groups of a node share, and none of them owns. The node keeps it up to date; machines only read
it, and between events it does not change, so that all they see of it is of one moment."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from moldau.config.broker import BrokerConfig
from moldau.config.group import GroupConfig
from moldau.metadata.image import ClusterImage, ResourceType


@dataclass(slots=True, kw_only=True)
class GroupEnvironment:
    config: BrokerConfig
    image: ClusterImage
    random: Random

    def group_config(self, group_id: str) -> GroupConfig:
        """The options of one group: what was set on it, and the broker's for the rest."""
        return self.config.group_in_effect(self.image.config(ResourceType.GROUP, group_id))
