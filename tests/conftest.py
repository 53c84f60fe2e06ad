"""What holds for every test: shapes are checked, runs repeat exactly, costly tests are opt-in.

It holds no fixtures of one package; those stand beside the tests that use them.
"""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import jaxtyping
import pytest
from hypothesis import HealthCheck, settings

SHAPE_CHECKED = ("blockdraft.decoding", "blockdraft.drafter")
OPT_IN = ("acceptance", "slow", "gpu", "network", "families")


def install_shape_checks() -> None:
    """Check every jaxtyping annotation of `SHAPE_CHECKED` at each call, with beartype.

    The checks are woven in when a module is imported, so they must be installed first.
    """
    early = [name for name in sys.modules if name.startswith(SHAPE_CHECKED)]
    if early:
        raise pytest.UsageError(f"imported before the shape checks were installed: {early}")
    jaxtyping.install_import_hook(list(SHAPE_CHECKED), "beartype.beartype")


def take_interrupts() -> None:
    """Ctrl-C acts here and in processes started from here, also where tests run in a background
    job of a shell, which ignores it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def choose_hypothesis_profile() -> None:
    """Few examples at the desk; more, and the same ones each time, where `CI` is set."""
    relaxed = [HealthCheck.too_slow]
    settings.register_profile(
        "desk", deadline=None, max_examples=25, suppress_health_check=relaxed, print_blob=True
    )
    settings.register_profile(
        "ci", settings.get_profile("desk"), max_examples=50, derandomize=True, database=None
    )
    settings.register_profile("thorough", settings.get_profile("desk"), max_examples=500)
    settings.load_profile("ci" if os.environ.get("CI") else "desk")


install_shape_checks()
take_interrupts()
choose_hypothesis_profile()


def chosen_markers(config: pytest.Config) -> str:
    expression = config.getoption("-m")
    return expression if isinstance(expression, str) else ""


def pytest_configure(config: pytest.Config) -> None:
    """Keep tests away from model hubs, except under exactly `-m network`."""
    if chosen_markers(config).strip() != "network":
        os.environ["HF_HUB_OFFLINE"] = "1"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip a test with an opt-in marker unless `-m` names that marker.

    So a bare `pytest` is the fast suite, whatever folder or file it is pointed at.
    """
    chosen = chosen_markers(config)
    for item in items:
        for name in OPT_IN:
            if item.get_closest_marker(name) is not None and name not in chosen:
                item.add_marker(pytest.mark.skip(reason=f"opt-in: run with -m {name}"))


@pytest.fixture(autouse=True)
def repeatable(request: pytest.FixtureRequest) -> Iterator[None]:
    """Same seed, deterministic kernels and a fixed number of threads in every test.

    Tiny models are fastest on one thread; the real model of the acceptance tests takes two, unless
    another worker has its tests run beside.
    """
    import torch

    num_threads = torch.get_num_threads()
    was_deterministic = torch.are_deterministic_algorithms_enabled()
    alone = "PYTEST_XDIST_WORKER" not in os.environ
    is_real = request.node.get_closest_marker("acceptance") is not None
    torch.set_num_threads(2 if is_real and alone else 1)
    torch.use_deterministic_algorithms(True)
    torch.default_generator.manual_seed(0)
    yield
    torch.set_num_threads(num_threads)
    torch.use_deterministic_algorithms(was_deterministic)


@pytest.fixture
def data_dir() -> Path:
    """The folder of the committed test data."""
    return Path(__file__).parent / "data"
