"""What the machines of transactions see of the world. The node keeps it up to date."""

from __future__ import annotations

from dataclasses import dataclass

from moldau.config.broker import BrokerConfig
from moldau.config.sections.transactions import Transactions
from moldau.metadata.features import TRANSACTION_VERSION
from moldau.metadata.image import ClusterImage


@dataclass(slots=True, kw_only=True)
class TxnEnvironment:
    config: BrokerConfig
    image: ClusterImage

    @property
    def options(self) -> Transactions:
        return self.config.transactions

    @property
    def transaction_version(self) -> int:
        """That of the cluster, for what no client asks for."""
        return self.image.features.get(TRANSACTION_VERSION, 0)
