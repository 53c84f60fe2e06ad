"""What a bench is asked to do: where, what requests ask for, and when they are sent.

It holds values only; prompts are `workload.py`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from urllib.parse import urlsplit

from blockdraft.bench.prompt import Asks
from blockdraft.errors import ConfigError

LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """An OpenAI-compatible server. `url` is its root, or ends with the version (/v1).

    `timeout` is in seconds and bounds a whole request. `flag` is the option that named it.
    """

    url: str
    api_key: str | None = field(default=None, repr=False)
    timeout: float = 600.0
    flag: str = "--endpoint"

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.url)
            is_http = parts.scheme in ("http", "https") and bool(parts.hostname)
            _ = parts.port
        except ValueError:
            is_http = False
        if not is_http:
            raise ConfigError(
                f"{self.flag} {self.shown!r} is no http address, like http://127.0.0.1:8000"
            )
        if self.timeout <= 0:
            raise ConfigError(f"--timeout is {self.timeout:g}; give seconds above 0")

    @property
    def shown(self) -> str:
        """The address for messages and results, without a user or password in it."""
        return without_secrets(self.url)

    @property
    def api(self) -> str:
        """The address that /chat/completions is put behind."""
        url = self.url.rstrip("/")
        return url if re.search(r"/v\d+$", url) else f"{url}/v1"

    @property
    def root(self) -> str:
        """The address that /metrics is put behind."""
        return re.sub(r"/v\d+$", "", self.api)

    @property
    def headers(self) -> dict[str, str]:
        return {} if self.api_key is None else {"Authorization": f"Bearer {self.api_key}"}

    @property
    def is_local(self) -> bool:
        """On this machine, where a proxy of the environment is not meant."""
        return urlsplit(self.url).hostname in LOOPBACK


def without_secrets(text: str) -> str:
    """Addresses in a text lose their user and password: http://user:pass@host is http://***@host."""
    return re.sub(r"(\w+://)[^/\s@]*@", r"\1***@", text)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSettings:
    """What every request asks for. `raw`: prompts go to /completions, without a chat template.

    `seed` begins the seeds of requests with a temperature, and the arrivals'. `explicit` names the
    settings that were given by the user, and that a row's own can't change.
    """

    max_tokens: int = 128
    temperature: float = 0.0
    template_args: Mapping[str, object] = field(default_factory=dict[str, object])
    ignore_eos: bool = False
    raw: bool = False
    seed: int = 0
    explicit: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.max_tokens < 1:
            raise ConfigError(f"--max-tokens is {self.max_tokens}; give at least 1")
        if not 0 <= self.temperature <= 100:
            raise ConfigError(f"--temperature is {self.temperature:g}; give 0 (greedy) or more")
        if self.seed < 0:
            raise ConfigError(f"--seed is {self.seed}; give 0 or more")
        if self.raw and self.template_args:
            raise ConfigError("--raw applies no chat template; drop --template-arg")

    def of(self, asks: Asks) -> "RequestSettings":
        """With a row's own settings, where the user gave none. `seed` stays the first one's."""
        own: dict[str, int | float | None] = {
            "max_tokens": asks.max_tokens,
            "temperature": asks.temperature,
            "ignore_eos": asks.ignore_eos,
        }
        told = {
            name: value
            for name, value in own.items()
            if value is not None and name not in self.explicit
        }
        template_args = {} if self.raw else {**asks.template_args, **self.template_args}
        return replace(self, **told, template_args=template_args)

    def seed_of(self, asks: Asks, number: int) -> int:
        """Of request `number` of a level: the row's own, else the first seed plus the number."""
        if asks.seed is not None and "seed" not in self.explicit:
            return asks.seed
        return self.seed + number


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """When requests are sent: so many at a time (closed loop), or at a mean rate a second.

    With a rate they come whether or not earlier ones are done, at exponential distances (a Poisson
    process), or at `times` (seconds from the beginning) as a log has them; `rate` is their mean
    then. Exactly one of the first two is given.
    """

    concurrency: int | None = None
    rate: float | None = None
    times: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        assert (self.concurrency is None) != (self.rate is None)
        if self.concurrency is not None and self.concurrency < 1:
            raise ConfigError(f"--concurrency is {self.concurrency}; give at least 1")
        if self.rate is not None and not 0 < self.rate < 1e6:
            raise ConfigError(f"--rate is {self.rate:g}; give requests a second, above 0")

    @property
    def title(self) -> str:
        if self.concurrency is not None:
            return f"{self.concurrency} at once"
        return f"{self.rate:g} a second" if self.times is None else f"as logged, {self.rate:.3g}/s"
