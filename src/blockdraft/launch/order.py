"""What is to be launched (`LaunchOrder`) and what that comes to (`LaunchPlan`).

Values only: nothing here looks at the disk, the machine or an engine.
"""

from dataclasses import dataclass
from typing import Literal

from blockdraft.errors import ConfigError

Device = Literal["cuda", "cpu"]
Layout = Literal["hf", "speculators", "gguf", "openvino", "remote"]
"""How a model lies there; `remote` is a hub id, of which nothing is known here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchTarget:
    """A target as engines are told of it; None where its files do not say.

    `has_only_head`: input and output matrix are one, and its file has it as `lm_head.weight` alone.
    """

    where: str
    layout: Layout
    num_heads: int | None = None
    has_only_head: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchDrafter:
    """A drafter as engines are told of it. `block_size` counts the anchor."""

    where: str
    layout: Layout
    block_size: int | None = None
    num_heads: int | None = None
    max_positions: int | None = None
    has_reduced_vocabulary: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PairForLaunch:
    target: LaunchTarget
    drafter: LaunchDrafter


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchOrder:
    """A pair, where it is to be served and how.

    `block_size` (anchor included) None means the drafter's own. `extra` goes to the engine as it
    is. Raises ConfigError for what no engine could do.
    """

    pair: PairForLaunch
    device: Device
    host: str = "127.0.0.1"
    port: int = 8000
    tensor_parallel: int = 1
    data_parallel: int = 1
    block_size: int | None = None
    dtype: str | None = None
    max_model_len: int | None = None
    extra: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, size in (
            ("--tensor-parallel", self.tensor_parallel),
            ("--data-parallel", self.data_parallel),
        ):
            if size < 1:
                raise ConfigError(f"{name} is {size}; give at least 1")
        if not 1 <= self.port <= 65535:
            raise ConfigError(f"--port is {self.port}; give a port from 1 to 65535")
        self._check_block()

    def _check_block(self) -> None:
        drafter, asked = self.pair.drafter, self.block_size
        trained = drafter.block_size
        if trained is None and asked is None:
            raise ConfigError(
                f"the block size of {drafter.where} is not known here; give the one it was trained "
                "with as --block-size"
            )
        if trained is not None and trained < 2:
            raise ConfigError(
                f"{drafter.where} records a block_size of {trained}, which is no block: the anchor "
                "and one draft are 2; write the trained one into the file"
            )
        if asked is not None and asked < 2:
            raise ConfigError(
                f"--block-size {asked} drafts nothing: a block is the anchor and its drafts; give "
                "at least 2, or start the engine without a drafter"
            )
        if asked is not None and trained is not None and asked > trained:
            raise ConfigError(
                f"--block-size {asked} is more than the {trained} that {drafter.where} was trained "
                "for: it never saw a mask further out, and drafts there are noise; give at most "
                f"{trained}"
            )

    @property
    def block(self) -> int:
        """The tokens of a block, anchor included."""
        chosen = self.block_size or self.pair.drafter.block_size
        assert chosen is not None, "checked when made"
        return chosen

    @property
    def num_drafts(self) -> int:
        """The drafts of a block: what most engines call k."""
        return self.block - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedFile:
    """A file that the command reads; its name stands in the command where its path belongs."""

    name: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """What has to be installed: a program, and for Python's `-m` a module it must find."""

    program: str
    module: str | None
    install: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchPlan:
    """How one engine is started with a pair.

    The command is `program` followed by `arguments`. `env` is set where the user has not set it.
    """

    engine: str
    program: tuple[str, ...]
    arguments: tuple[str, ...]
    needs: Requirement
    host: str
    port: int
    block_size: int
    health_path: str = "/health"
    env: tuple[tuple[str, str], ...] = ()
    files: tuple[PlannedFile, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def command(self) -> tuple[str, ...]:
        return (*self.program, *self.arguments)

    @property
    def url(self) -> str:
        """Where a client on this machine reaches the engine."""
        everywhere = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # what a wildcard listens on, too
        host = everywhere.get(self.host, self.host)
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    @property
    def health_url(self) -> str:
        return self.url + self.health_path
