"""Every setting of `blockdraft serve` as a flag: its form, its choices and its help.

The same table makes the keys of the configuration file and is shown in docs/serving.md.
"""

from argparse import SUPPRESS, ArgumentParser, ArgumentTypeError
from collections.abc import Callable
from dataclasses import dataclass, fields
from math import isfinite

from blockdraft.cli import values
from blockdraft.cli.args import DTYPES, ENGINES, QUANTIZATIONS
from blockdraft.cli.serve_settings import ServeSettings

TOOL_PARSERS = ("auto", "none", "hermes", "qwen3-coder", "llama3-json")
REASONING_PARSERS = ("auto", "none", "think")
METRICS_DETAILS = ("none", "summary", "detailed")
LOG_FORMATS = ("text", "json")
LOG_LEVELS = ("debug", "info", "warning", "error")


def seconds(text: str) -> float:
    """A time in seconds, above 0."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not (isfinite(number) and number > 0):
        raise ArgumentTypeError(f"{text!r} is not a time in seconds above 0, like 600 or 0.5")
    return number


def port(text: str) -> int:
    """A TCP port; 0 = one that is free."""
    if not (text.isascii() and text.isdigit() and len(text) <= 5 and int(text) < 65536):
        raise ArgumentTypeError(f"{text!r} is not a port, a number from 0 (any free one) to 65535")
    return int(text)


def count_or_none(text: str) -> int:
    """A whole number of at least 0."""
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise ArgumentTypeError(f"{text!r} is not a whole number of at least 0")
    return int(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """How one setting is given. `convert` None is a switch; `many` collects several values."""

    flag: str
    help: str
    group: str
    convert: Callable[[str], object] | None = str
    choices: tuple[str, ...] | None = None
    metavar: str | None = None
    many: bool = False

    @property
    def key(self) -> str:
        """Its name in `ServeSettings` and in the file: --max-context is max_context."""
        return self.flag.removeprefix("--").replace("-", "_")

    @property
    def default(self) -> object:
        return _DEFAULTS[self.key]


_DEFAULTS: dict[str, object] = {field.name: field.default for field in fields(ServeSettings)}

MODELS, ENGINE, HTTP, ANSWERS, LOGS = "models", "engine", "HTTP", "answers", "logs"

SETTINGS: tuple[Setting, ...] = (
    Setting(
        flag="--target",
        group=MODELS,
        metavar="MODEL",
        help="built-in name (see `blockdraft models`), folder, GGUF file or hub id",
    ),
    Setting(
        flag="--drafter",
        group=MODELS,
        metavar="MODEL",
        help="built-in name, folder or hub id of a DFlash drafter; prompt-lookup; or none for "
        "plain decoding (default: the built-in one of a built-in target, the published one of a "
        "hub id: `blockdraft models --published`)",
    ),
    Setting(
        flag="--revision",
        group=MODELS,
        metavar="REVISION",
        help="commit, tag or branch of a target from the hub",
    ),
    Setting(
        flag="--drafter-revision", group=MODELS, metavar="REVISION", help="the same for the drafter"
    ),
    Setting(
        flag="--yes",
        group=MODELS,
        convert=None,
        help="download a published drafter without being asked",
    ),
    Setting(
        flag="--taps",
        group=MODELS,
        metavar="LAYERS",
        convert=values.id_list,
        help="zero-based target layers the drafter reads, like 1,8,14, for a checkpoint that does "
        "not say",
    ),
    Setting(
        flag="--dtype",
        group=MODELS,
        choices=DTYPES,
        help="of weights and passes; auto = the faster of float32 and bfloat16 here, by measuring",
    ),
    Setting(
        flag="--quantize", group=MODELS, choices=QUANTIZATIONS, help="round the target's weights"
    ),
    Setting(
        flag="--device",
        group=MODELS,
        metavar="DEVICE",
        help="torch device (default: torch chooses)",
    ),
    Setting(
        flag="--threads",
        group=MODELS,
        metavar="N",
        convert=values.thread_count,
        help="CPU threads of torch (default: what OMP_NUM_THREADS says; without it one for each "
        "core, and from 4 cores on all but one, which answers HTTP)",
    ),
    Setting(
        flag="--engine",
        group=ENGINE,
        choices=ENGINES,
        help="native = our own decoder, for dense Llama-like models; hf = transformers, for any; "
        "auto = native where it fits",
    ),
    Setting(
        flag="--width",
        group=ENGINE,
        metavar="auto|off|fixed:N",
        help="tokens of a block, anchor included: auto = chosen at every step, drafting only "
        "where it pays; off = plain decoding; fixed:N = always N",
    ),
    Setting(
        flag="--compile",
        group=ENGINE,
        convert=None,
        help="verify in fixed shapes through torch.compile where that is faster",
    ),
    Setting(
        flag="--slots",
        group=ENGINE,
        metavar="N",
        convert=values.count,
        help="answers that are generated at once",
    ),
    Setting(
        flag="--max-context",
        group=ENGINE,
        metavar="N",
        convert=values.count,
        help="tokens of one prompt and its answer together (default: the target's limit, at most "
        "8192)",
    ),
    Setting(
        flag="--kv-memory",
        group=ENGINE,
        metavar="SIZE",
        convert=values.byte_count,
        help="memory for keys and values of target and drafter, like 500MB or 2GiB (default: half "
        "of what is free once the models are loaded)",
    ),
    Setting(
        flag="--prefill-chunk",
        group=ENGINE,
        metavar="N",
        convert=values.count,
        help="prompt tokens that a step takes in while others decode: fewer keep their pauses "
        "short, more bring the first token sooner",
    ),
    Setting(
        flag="--no-prefix-reuse",
        group=ENGINE,
        convert=None,
        help="compute every prompt anew, also where it begins like an earlier one",
    ),
    Setting(
        flag="--host",
        group=HTTP,
        metavar="ADDRESS",
        help="address to listen on; 0.0.0.0 = all of them, which wants an API key",
    ),
    Setting(
        flag="--port",
        group=HTTP,
        metavar="N",
        convert=port,
        help="port to listen on; 0 = any free one, which the banner tells",
    ),
    Setting(
        flag="--served-model-name",
        group=HTTP,
        metavar="NAME",
        many=True,
        help="what clients call the model; repeatable, the first one stands in answers (default: "
        "the target's name)",
    ),
    Setting(
        flag="--api-key",
        group=HTTP,
        metavar="KEY",
        many=True,
        help="a key that requests must carry; repeatable. Other users of the machine can see it "
        "here: prefer a file, or the environment variable BLOCKDRAFT_API_KEY",
    ),
    Setting(flag="--api-key-file", group=HTTP, metavar="FILE", help="a file with one key a line"),
    Setting(
        flag="--cors-origin",
        group=HTTP,
        metavar="ORIGIN",
        many=True,
        help="a web origin whose pages may call the API, like https://app.example.com; repeatable "
        "(default: none)",
    ),
    Setting(
        flag="--max-waiting",
        group=HTTP,
        metavar="N",
        convert=count_or_none,
        help="requests that may wait for a slot; the next one gets 503 with Retry-After",
    ),
    Setting(
        flag="--max-body",
        group=HTTP,
        metavar="SIZE",
        convert=values.byte_count,
        help="largest request body, like 4MiB",
    ),
    Setting(
        flag="--request-timeout",
        group=HTTP,
        metavar="SECONDS",
        convert=seconds,
        help="longest time for one request, from its first byte to its last",
    ),
    Setting(
        flag="--drain-timeout",
        group=HTTP,
        metavar="SECONDS",
        convert=seconds,
        help="after SIGTERM, time for accepted requests to finish before they fail",
    ),
    Setting(
        flag="--tool-parser",
        group=ANSWERS,
        choices=TOOL_PARSERS,
        help="how the model writes tool calls; auto = what its chat template shows",
    ),
    Setting(
        flag="--reasoning-parser",
        group=ANSWERS,
        choices=REASONING_PARSERS,
        help="how the model marks its reasoning; auto = what its chat template shows",
    ),
    Setting(
        flag="--trust-request-chat-template",
        group=ANSWERS,
        convert=None,
        help="let requests bring a chat template of their own, which is code that runs here",
    ),
    Setting(
        flag="--spec-decode-metrics",
        group=ANSWERS,
        choices=METRICS_DETAILS,
        help="what every answer tells of its drafts, where the request does not say",
    ),
    Setting(flag="--no-playground", group=ANSWERS, convert=None, help="do not serve the page at /"),
    Setting(
        flag="--log-format", group=LOGS, choices=LOG_FORMATS, help="lines for people, or JSON lines"
    ),
    Setting(
        flag="--log-file",
        group=LOGS,
        metavar="FILE",
        help="append to FILE (default: standard error)",
    ),
    Setting(
        flag="--log-level",
        group=LOGS,
        choices=LOG_LEVELS,
        help="least level that is logged; debug adds probes of /health, /ready and /metrics",
    ),
    Setting(
        flag="--log-prompts",
        group=LOGS,
        convert=None,
        help="log what requests and answers say (default: no text of theirs is in any log)",
    ),
)


def add_settings(parser: ArgumentParser) -> None:
    """A flag for each setting; one that is not given leaves nothing in the namespace."""
    groups = {
        name: parser.add_argument_group(name) for name in (MODELS, ENGINE, HTTP, ANSWERS, LOGS)
    }
    for setting in SETTINGS:
        group = groups[setting.group]
        flag, text = setting.flag, setting.help + shown_default(setting)
        if setting.convert is None:
            group.add_argument(flag, action="store_true", default=SUPPRESS, help=text)
            continue
        group.add_argument(
            flag,
            action="append" if setting.many else "store",
            type=setting.convert,
            choices=setting.choices,
            metavar=setting.metavar,
            default=SUPPRESS,
            help=text,
        )


def shown_default(setting: Setting) -> str:
    """ " (default: 16)", where the help text does not tell the default itself."""
    default = setting.default
    if default in (None, False, ()) or "(default:" in setting.help:
        return ""
    if setting.key == "max_body":
        return " (default: 4MiB)"
    return f" (default: {default:g})" if isinstance(default, float) else f" (default: {default})"
