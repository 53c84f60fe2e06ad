"""What holds for every test: shapes are checked, runs repeat exactly, costly tests are opt-in.

It holds no fixtures of one package; those stand beside the tests that use them.
"""

import atexit
import dataclasses
import functools
import gc
import inspect
import os
import signal
import sys
import typing
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import jaxtyping
import pytest
from beartype import BeartypeConf, beartype
from hypothesis import HealthCheck, settings

SHAPE_CHECKED = ("blockdraft.decoding", "blockdraft.drafter")
JAXTYPED = typing.cast(Callable[..., Callable[..., object]], jaxtyping.jaxtyped)
OF_ONE_CALL = typing.cast(AbstractContextManager[object], JAXTYPED("context"))
"""The names of axes that are bound while a function runs; keeps nothing, so it may nest."""
TYPE_CHECKED = typing.cast(
    Callable[[Callable[..., object]], Callable[..., object]],
    beartype(conf=BeartypeConf(violation_type=jaxtyping.TypeCheckError)),
)
OPT_IN = ("acceptance", "slow", "gpu", "network", "families")


def may_hold_shapes(annotation: object) -> bool:
    """Whether a jaxtyping shape stands anywhere in an annotation; in text, one might."""
    if isinstance(annotation, str | typing.ForwardRef):
        return True
    if isinstance(annotation, type) and issubclass(annotation, jaxtyping.AbstractArray):
        return True
    if isinstance(annotation, list):  # the parameters of a `Callable`
        return any(map(may_hold_shapes, typing.cast(list[object], annotation)))
    return any(map(may_hold_shapes, typing.get_args(annotation)))


def shape_checked(checked: Callable[..., object]) -> Callable[..., object]:
    """What `jaxtyping.jaxtyped` does to a function or dataclass, in half the time of a test.

    Each annotation is checked once a call, all in one context of axis names. The original checks
    the parameters twice, and binds them to their names for its messages even where all is well. It
    stays in charge of generators, whose parameters beartype alone looks at too late.
    """
    if inspect.isclass(checked):
        if dataclasses.is_dataclass(checked):
            setattr(checked, "__init__", shape_checked(checked.__init__))  # noqa: B010
        return checked
    if inspect.isgeneratorfunction(checked):
        return JAXTYPED(checked, typechecker=beartype)
    typed = TYPE_CHECKED(checked)
    if not any(map(may_hold_shapes, inspect.get_annotations(checked).values())):
        return typed

    @functools.wraps(checked)
    def in_context(*args: object, **kwargs: object) -> object:
        with OF_ONE_CALL:
            return typed(*args, **kwargs)

    return in_context


def install_shape_checks() -> None:
    """Check every jaxtyping annotation of `SHAPE_CHECKED` at each call, with beartype.

    The checks are woven in when a module is imported, so they must be installed first.
    """
    early = [name for name in sys.modules if name.startswith(SHAPE_CHECKED)]
    if early:
        raise pytest.UsageError(f"imported before the shape checks were installed: {early}")

    def jaxtyped(**_: object) -> Callable[[Callable[..., object]], Callable[..., object]]:
        return shape_checked

    # By this name the hook finds its decorator.
    setattr(jaxtyping, "jaxtyped", jaxtyped)  # noqa: B010
    jaxtyping.install_import_hook(list(SHAPE_CHECKED), "beartype.beartype")


def take_interrupts() -> None:
    """Ctrl-C acts here and in processes started from here, also where tests run in a background
    job of a shell, which ignores it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def choose_hypothesis_profile() -> None:
    """New examples each time at the desk, the same ones where `CI` is set.

    As many in both; a law that needs more of them says so itself.
    """
    relaxed = [HealthCheck.too_slow]
    settings.register_profile(
        "desk", deadline=None, max_examples=25, suppress_health_check=relaxed, print_blob=True
    )
    settings.register_profile("ci", settings.get_profile("desk"), derandomize=True, database=None)
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


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """Importing and collecting makes most objects there will ever be, and no garbage to speak of.

    Looking through them for cycles again and again takes as long as the collection itself; what
    was there before the first test is never looked through at all.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
        atexit.register(gc.unfreeze)  # so that all of it can be taken down in order


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
