"""What an endpoint does under load: latency, throughput and acceptance of any OpenAI-like server.

Its contract: `Bench` measures levels of load and `bench_document` says what came out. It loads no
model, prints nothing, and starts no server.
"""

from blockdraft.bench.acceptance import Acceptance, SourceFigures
from blockdraft.bench.config import Arrival, Endpoint, RequestSettings
from blockdraft.bench.latency import Speed, Spread, speed_of
from blockdraft.bench.records import Failure, RequestRecord
from blockdraft.bench.results import ResultsFolder, bench_document
from blockdraft.bench.run import Bench, BenchOrder, Level
from blockdraft.bench.workload import BUILTIN, Workload, make_jobs, read_workload

__all__ = [
    "BUILTIN",
    "Acceptance",
    "Arrival",
    "Bench",
    "BenchOrder",
    "Endpoint",
    "Failure",
    "Level",
    "RequestRecord",
    "RequestSettings",
    "ResultsFolder",
    "SourceFigures",
    "Speed",
    "Spread",
    "Workload",
    "bench_document",
    "make_jobs",
    "read_workload",
    "speed_of",
]
