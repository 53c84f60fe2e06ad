"""`EngineCollector`: readings of the engine as Prometheus families, made anew at each scrape.

It counts nothing itself.
"""

from collections.abc import Iterator

from blockdraft.errors import ConfigError
from blockdraft.serving.metrics.catalog import CATALOG, COMMON_LABELS
from blockdraft.serving.metrics.readings import MetricsConfig, Watched, read_engine

try:
    from prometheus_client import Metric
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
except ImportError as error:
    raise ConfigError(
        f"metrics need prometheus_client ({error}): pip install 'blockdraft[serve]'"
    ) from error


class EngineCollector:
    """Yields nothing before it has a runner to watch."""

    def __init__(self, config: MetricsConfig) -> None:
        self._config = config
        self._runner: Watched | None = None

    def watch(self, runner: Watched) -> None:
        self._runner = runner

    def collect(self) -> Iterator[Metric]:
        if self._runner is None:
            return
        common = (self._config.model_name, self._config.engine)
        readings = read_engine(self._config, self._runner)
        for info in CATALOG:
            if info.source != "engine":
                continue
            make = CounterMetricFamily if info.kind == "counter" else GaugeMetricFamily
            family = make(info.name, info.help, labels=(*COMMON_LABELS, *info.labels))
            for labels, value in readings[info.name].items():
                family.add_metric((*common, *labels), value)
            yield family
