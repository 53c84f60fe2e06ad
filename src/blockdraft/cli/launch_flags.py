"""Flags of `blockdraft launch ENGINE`: the same for every engine.

It names engines and dtypes a second time, so that `blockdraft --help` need not import them.
"""

from argparse import ArgumentParser
from pathlib import Path

from blockdraft.cli import values
from blockdraft.cli.serve_flags import seconds

ENGINE_TITLES = {
    "vllm": "vLLM",
    "sglang": "SGLang",
    "trtllm": "TensorRT-LLM",
    "llamacpp": "llama.cpp",
    "openvino": "OpenVINO GenAI",
}
DTYPES = ("auto", "float32", "bfloat16", "float16")
DEFAULT_PORT = 8000
DEFAULT_TIMEOUT = 600.0
DEFAULT_GRACE = 30.0


def add_launch_flags(parser: ArgumentParser) -> None:
    _add_pair(parser)
    _add_serving(parser)
    _add_running(parser)
    parser.add_argument(
        "extra", nargs="*", metavar="-- FLAGS", help="further flags, to the engine as they are"
    )


def _add_pair(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("pair")
    group.add_argument(
        "--target",
        required=True,
        metavar="MODEL",
        help="folder, hub id, built-in name, or what export wrote for this engine",
    )
    group.add_argument(
        "--drafter",
        required=True,
        metavar="MODEL",
        help="the same for the drafter; where export wrote both into one folder, that folder",
    )
    group.add_argument(
        "--block-size",
        type=values.count,
        metavar="B",
        help="tokens of a block, anchor included; each engine is told it in its own way of counting"
        " (default: what the drafter was trained for, which is also the most)",
    )


def _add_serving(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("serving")
    group.add_argument(
        "--tensor-parallel",
        type=values.count,
        default=1,
        metavar="N",
        help="GPUs that share one copy of the target (default: %(default)s)",
    )
    group.add_argument(
        "--data-parallel",
        type=values.count,
        default=1,
        metavar="N",
        help="copies behind one address, where the engine has that (default: %(default)s)",
    )
    group.add_argument("--host", default="127.0.0.1", help="address (default: %(default)s)")
    group.add_argument(
        "--port", type=values.count, default=DEFAULT_PORT, metavar="N", help="default: %(default)s"
    )
    group.add_argument(
        "--dtype", choices=DTYPES, default="auto", help="auto (default) leaves it to the engine"
    )
    group.add_argument(
        "--max-model-len",
        type=values.count,
        metavar="N",
        help="tokens of a prompt and its answer together (default: the engine's)",
    )
    group.add_argument(
        "--device",
        choices=("auto", "cuda", "cpu"),
        default="auto",
        help="auto (default) looks for the driver of a GPU on this machine",
    )


def _add_running(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("running")
    group.add_argument(
        "--print",
        action="store_true",
        dest="print_only",
        help="write the command, and files that it needs, to stdout; start nothing",
    )
    group.add_argument("--json", action="store_true", help="with --print: one JSON document")
    group.add_argument(
        "--venv",
        type=Path,
        metavar="DIR",
        help="virtual environment of the engine; it is started from there or not at all",
    )
    group.add_argument(
        "--files", type=Path, metavar="DIR", help="keep files that the engine reads in DIR"
    )
    group.add_argument(
        "--timeout",
        type=seconds,
        default=DEFAULT_TIMEOUT,
        metavar="SECONDS",
        help="until the engine has to be healthy, loading included (default: %(default)g)",
    )
    group.add_argument(
        "--grace",
        type=seconds,
        default=DEFAULT_GRACE,
        metavar="SECONDS",
        help="that the engine gets to end after a signal (default: %(default)g)",
    )
