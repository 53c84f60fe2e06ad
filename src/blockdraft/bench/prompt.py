"""`BenchPrompt`: one request of a workload, and what its row asks for beside the text.

It reads no file (`rows.py`) and sends nothing (`wire.py`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

JsonObject = Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chat:
    """A conversation as its row has it, the system message among the others.

    `messages` end with a user's, or with a tool's result. `tools` None: the row offers none.
    """

    messages: tuple[JsonObject, ...]
    tools: tuple[JsonObject, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Asks:
    """A row's own settings; None or empty where it says nothing.

    `fields` are further fields of the request, by OpenAI's names, which go to an endpoint as they
    are.
    """

    max_tokens: int | None = None
    temperature: float | None = None
    seed: int | None = None
    ignore_eos: bool | None = None
    template_args: Mapping[str, object] = field(default_factory=dict[str, object])
    fields: Mapping[str, object] = field(default_factory=dict[str, object])


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchPrompt:
    """What one request says. `where` heads an error about it: a file and its line.

    `content` is text (one user message), ready token ids, or a whole conversation; `system` goes
    with text only. `raw` text gets no chat template: it is of a logged completion. `at_s` is when
    a log says that it came, in seconds; None where it does not say.
    """

    where: str
    id: str
    category: str = ""
    content: str | tuple[int, ...] | Chat
    system: str | None = None
    raw: bool = False
    asks: Asks = field(default_factory=Asks)
    at_s: float | None = None

    @property
    def needs_template(self) -> bool:
        """Whether it has no meaning without a chat template."""
        return isinstance(self.content, Chat) or self.system is not None
