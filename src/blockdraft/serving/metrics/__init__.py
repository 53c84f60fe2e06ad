"""What the server measures, in Prometheus' text format, and a Grafana dashboard for it.

It watches the runner from outside; leaving it out changes no answer. Without prometheus_client, a
part of the extra `serve`, importing it raises ConfigError.
"""

from blockdraft.serving.metrics.catalog import CATALOG, MetricInfo, catalog_table
from blockdraft.serving.metrics.dashboard import DASHBOARD_FILE, build_dashboard
from blockdraft.serving.metrics.readings import MetricsConfig, Watched
from blockdraft.serving.metrics.registry import CONTENT_TYPE, ServingMetrics

__all__ = [
    "CATALOG",
    "CONTENT_TYPE",
    "DASHBOARD_FILE",
    "MetricInfo",
    "MetricsConfig",
    "ServingMetrics",
    "Watched",
    "build_dashboard",
    "catalog_table",
]
