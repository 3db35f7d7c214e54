"""Plans of offsets as files: Kafka's CSV, a line for each partition, with the group in front if there may be
several. Written as Kafka's tools write it, read as they read it."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping

from moldau.client.cluster import TopicPartition

Plan = Mapping[TopicPartition, int]

# Kafka's writer looks no closer at longer texts, and puts them in quotes; so it does with what is or begins
# below the comma.
_BARE_MAX = 24


def to_csv(plans: Mapping[str, Plan], *, with_groups: bool) -> str:
    lines = []
    for group_id, plan in plans.items():
        for place, offset in sorted(plan.items()):
            cells = [_quoted(place.topic), str(place.partition), str(offset)]
            lines.append(",".join([_quoted(group_id), *cells] if with_groups else cells) + "\n")
    return "".join(lines)


def _quoted(text: str) -> str:
    if len(text) <= _BARE_MAX and all(character > "," for character in text):
        return text
    return '"' + text.replace('"', '""') + '"'


def from_csv(lines: Iterable[str], only_group: str | None) -> dict[str, dict[TopicPartition, int]]:
    """Lines of topic, partition and offset are about `only_group`. Raises ValueError with what is wrong."""
    plans: dict[str, dict[TopicPartition, int]] = {}
    for number, cells in enumerate(csv.reader(lines), 1):
        if not cells:
            continue
        if len(cells) == 3 and only_group is not None:
            cells = [only_group, *cells]
        if len(cells) != 4:
            wanted = "topic,partition,offset" if only_group is not None else "group,topic,partition,offset"
            raise ValueError(f"line {number} is not {wanted}")
        group_id, topic, partition, offset = (cell.strip() for cell in cells)
        try:
            plans.setdefault(group_id, {})[TopicPartition(topic, int(partition))] = int(offset)
        except ValueError:
            raise ValueError(f"line {number}: partition and offset are no whole numbers") from None
    return plans
