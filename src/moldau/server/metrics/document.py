"""The page about all metrics, made from the catalog."""

from __future__ import annotations

from moldau.server.metrics.catalog import GROUPS, QUANTILES, Family

_HEAD = """\
# Metrics

A node serves its metrics over HTTP in the Prometheus text format (version 0.0.4) when it is told a port:
`moldau up --metrics-port 9404`, or `moldau.metrics.port` and `moldau.metrics.host` among its
[properties](configuration.md#metrics).

```sh
curl http://127.0.0.1:9404/metrics
curl http://127.0.0.1:9404/health    # 200 once the node serves its clients, 503 before and while it stops
```

```yaml
scrape_configs:
  - job_name: moldau
    static_configs:
      - targets: ["127.0.0.1:9404"]
```

There is no encryption and no authentication on this port: keep it on an address that only those reach who may
see the names of your topics.

Names and meanings are Kafka's, in the form that the Prometheus JMX exporter gives them with its usual rules
(lower case, `PerSec` counters as `_total`, percentiles as `quantile`), so that dashboards made for Kafka
work. What Kafka has no MBean for begins with `moldau_`, `process_` or `python_`. What differs:

- Summaries have the quantiles {quantiles}, of the last five minutes at most and up to 7 % above the
  exact value, and `_sum` and `_count` of every single event since the node started. Times are in milliseconds
  where Kafka's are.
- An API has metrics from its first request, a topic from its first use, a family from its first sample.
  `Fetch` and `FetchConsumer` are the same as long as there are no followers.
- Rates are left to Prometheus: `rate(kafka_server_brokertopicmetrics_bytesin_total{{topic!=""}}[1m])`. The
  samples without `topic` are sums over all topics; take care not to add them up with the others.

This page is made from the declarations in `src/moldau/server/metrics/catalog.py`.
"""


def to_markdown() -> str:
    """The text of docs/metrics.md."""
    quantiles = ", ".join(str(quantile) for quantile in QUANTILES)
    sections = [_HEAD.format(quantiles=quantiles)]
    for group in GROUPS:
        rows = ["| Metric | Type | Labels | Unit | Meaning | Kafka's name |", "|---|---|---|---|---|---|"]
        rows += map(_row, group.families)
        sections.append(f"\n## {group.title}\n\n" + "\n".join(rows) + "\n")
    return "".join(sections)


def _row(family: Family) -> str:
    labels = ", ".join(f"`{label}`" for label in family.labels) or "none"
    mbean = f"`{family.mbean}`" if family.mbean else "none"
    cells = (f"`{family.name}`", family.type, labels, family.unit, family.doc, mbean)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


if __name__ == "__main__":
    print(to_markdown(), end="")
