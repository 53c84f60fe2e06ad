"""Applications over scripted and tiny targets, with the engine on its own thread.

Clients talk to the application in this process; no socket is opened.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TypedDict, Unpack

import pytest
import torch
from starlette.testclient import TestClient

from blockdraft.decoding import Completion, NoDrafter, SamplingParams, collect, decode
from blockdraft.engine import EngineConfig, build_engine, parse_width
from blockdraft.parsing import choose_reasoning_format, choose_tool_format
from blockdraft.serving.app import create_app
from blockdraft.serving.runner import EngineRunner
from blockdraft.serving.server_config import ServerConfig
from blockdraft.serving.service import Grammars, Service
from blockdraft.target import HFTarget
from blockdraft.testing import OracleDrafter, TinySize, tiny_target
from blockdraft.testing.chat import END_ID, VOCAB_SIZE, ChatTarget, chat_codec

CODEC = chat_codec()
MODEL = "tiny"
MAX_CONTEXT = 1024

torch.set_num_threads(1)


class Settings(TypedDict, total=False):
    """The fields of `Setup` that a test may name."""

    block_size: int
    num_right: int | None
    slots: int
    max_waiting: int
    config: ServerConfig
    grammar: Grammars | None
    reasoning: str
    tool_parser: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """How a test wants its server."""

    answers: Mapping[str, str] | None = None
    block_size: int = 5
    num_right: int | None = None
    slots: int = 4
    max_waiting: int = 64
    config: ServerConfig = field(default_factory=ServerConfig)
    grammar: Grammars | None = None
    reasoning: str = "auto"
    tool_parser: str = "auto"


Serve = Callable[..., TestClient]
Reference = Callable[[str, SamplingParams], Completion]


def tiny_random_target() -> HFTarget:
    size = TinySize(vocab_size=VOCAB_SIZE, max_context_len=MAX_CONTEXT, stop_ids=(END_ID,))
    return tiny_target(dtype=torch.float32, size=size)


@pytest.fixture
def reference() -> Reference:
    """What the tiny random target answers offline, one token a step."""
    target = tiny_random_target()

    def answer(prompt: str, params: SamplingParams) -> Completion:
        ids = CODEC.encode(prompt)
        steps = decode(target, NoDrafter(), ids, params, decode_text=CODEC.decode)
        return collect(ids, steps)

    return answer


@pytest.fixture(scope="module")
def serve() -> Iterator[Serve]:
    """Gives a client of a scripted model (or, without answers, a tiny random one).

    The same settings give the same server, which lives as long as the test file.
    """
    runners: list[EngineRunner] = []
    known: dict[str, TestClient] = {}

    def make(answers: Mapping[str, str] | None = None, **settings: Unpack[Settings]) -> TestClient:
        setup = Setup(answers=answers, **settings)
        target: HFTarget | ChatTarget = tiny_random_target()
        if answers is not None:
            target = ChatTarget(CODEC, answers, max_context_len=MAX_CONTEXT)
        drafter = OracleDrafter(target, setup.block_size, num_right=setup.num_right)
        config = EngineConfig(
            slots=setup.slots, kv_memory=1 << 26, width=parse_width(f"fixed:{setup.block_size}")
        )
        built = build_engine(target, drafter, config, decode_text=CODEC.decode)
        runner = EngineRunner(built.engine, max_waiting=setup.max_waiting)
        runner.start()
        runners.append(runner)
        service = Service(
            model_name=MODEL,
            runner=runner,
            codec=CODEC,
            vocab_size=VOCAB_SIZE,
            stop_ids=target.spec.stop_ids,
            max_model_len=built.capacity.max_context,
            num_spec_tokens=setup.block_size - 1,
            drafter_name="oracle",
            grammar=setup.grammar,
            tool_format=choose_tool_format(CODEC.chat_template, setup.tool_parser),
            reasoning_format=choose_reasoning_format(CODEC.chat_template, setup.reasoning),
        )
        return TestClient(create_app(service, setup.config), raise_server_exceptions=False)

    def known_or_made(
        answers: Mapping[str, str] | None = None, **settings: Unpack[Settings]
    ) -> TestClient:
        key = repr((answers, settings))
        if key not in known:
            known[key] = clients.enter_context(make(answers, **settings))
        return known[key]

    with ExitStack() as clients:
        yield known_or_made
    for runner in runners:
        runner.stop()
