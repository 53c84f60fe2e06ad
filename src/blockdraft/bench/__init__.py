"""What a model does under load: latency, throughput and acceptance, in process or at an endpoint.

Its contract: workloads (`read_workload`), measuring (`Bench` of an endpoint, `in_process` of a
model that is loaded here) and what came out (`run_document`). It prints nothing and starts no
server.
"""

from blockdraft.bench.acceptance import Acceptance, SourceFigures
from blockdraft.bench.config import Arrival, Endpoint, RequestSettings
from blockdraft.bench.endpoint_run import EndpointPlan, check_baseline, endpoint_run, turns
from blockdraft.bench.fields import ENDPOINT, IN_PROCESS, FieldRules
from blockdraft.bench.latency import Speed, Spread, speed_of
from blockdraft.bench.levels import LaneInfo, LevelResult
from blockdraft.bench.prompt import Asks, BenchPrompt, Chat
from blockdraft.bench.records import Failure, RequestRecord
from blockdraft.bench.results import ResultsFolder, run_document
from blockdraft.bench.run import Bench, BenchOrder, Level
from blockdraft.bench.set_files import SETS
from blockdraft.bench.workload import (
    Workload,
    WorkloadSource,
    logged_arrival,
    make_jobs,
    read_workload,
    workload_document,
)

__all__ = [
    "ENDPOINT",
    "IN_PROCESS",
    "SETS",
    "Acceptance",
    "Arrival",
    "Asks",
    "Bench",
    "BenchOrder",
    "BenchPrompt",
    "Chat",
    "Endpoint",
    "EndpointPlan",
    "Failure",
    "FieldRules",
    "LaneInfo",
    "Level",
    "LevelResult",
    "RequestRecord",
    "RequestSettings",
    "ResultsFolder",
    "SourceFigures",
    "Speed",
    "Spread",
    "Workload",
    "WorkloadSource",
    "check_baseline",
    "endpoint_run",
    "logged_arrival",
    "make_jobs",
    "read_workload",
    "run_document",
    "speed_of",
    "turns",
    "workload_document",
]
