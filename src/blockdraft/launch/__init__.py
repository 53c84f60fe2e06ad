"""Commands of other engines for a target and its drafter: made, shown, run.

It measures nothing and checks no weights; those are `blockdraft bench` and `blockdraft check`.
"""

from blockdraft.launch.installed import engine_environment, found_device, locate
from blockdraft.launch.order import (
    LaunchDrafter,
    LaunchOrder,
    LaunchPlan,
    LaunchTarget,
    PairForLaunch,
)
from blockdraft.launch.pair import read_pair
from blockdraft.launch.registry import ENGINES, Engine
from blockdraft.launch.render import as_document, bench_command, render_shell
from blockdraft.launch.running import RunOrder, run_plan

__all__ = [
    "ENGINES",
    "Engine",
    "LaunchDrafter",
    "LaunchOrder",
    "LaunchPlan",
    "LaunchTarget",
    "PairForLaunch",
    "RunOrder",
    "as_document",
    "bench_command",
    "engine_environment",
    "found_device",
    "locate",
    "read_pair",
    "render_shell",
    "run_plan",
]
