"""What `blockdraft data regenerate` does: load who answers, run, report.

What is asked and kept is in `data/regenerate.py`.
"""

import os
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, cast

from blockdraft.cli.answer_loading import Writer, load_local, load_tokenizer
from blockdraft.cli.answer_progress import Standing, watch
from blockdraft.cli.console import emit_json, say
from blockdraft.data.answer_files import SETTINGS_FILE
from blockdraft.data.answer_requests import AnswerSource
from blockdraft.data.answer_tally import Tally
from blockdraft.data.conversation_files import ConversationFiles, read_conversations
from blockdraft.data.endpoint import EndpointConfig, EndpointGenerator
from blockdraft.data.regenerate import Regeneration, Report
from blockdraft.data.regenerate_config import RegenerateConfig
from blockdraft.errors import ConfigError


class Asked(NamedTuple):
    """Who answers, and what it writes for."""

    writer: Writer
    source: AnswerSource


def regenerate_answers(args: Namespace) -> int:
    """Run the command; prompts and settings are checked before anything is loaded."""
    config = _config(args)
    endpoint = _endpoint(args)
    files = read_conversations([Path(name) for name in args.prompts], args.limit)
    folder = Path(args.out)
    with watch("turns") as show:
        asked = _load(args, endpoint, folder)
        # Loading may have found that the target has less room.
        config = _config(args)
        run = _regeneration(folder, files, config, asked)
        try:
            report = run.run(
                lambda tally: show(_standing(tally)), adopt=args.adopt, pack_only=args.pack
            )
        except KeyboardInterrupt:
            say(
                f"interrupted after {run.tally.num_settled:,} of {run.tally.num_turns:,} turns; "
                "what is answered is kept, and the same command goes on from there"
            )
            return 130
    show_report(report)
    if args.json:
        emit_json(_document(report), indent=2)
    return 1 if report.num_failed else 0


def _config(args: Namespace) -> RegenerateConfig:
    return RegenerateConfig(
        max_new_tokens=args.max_new_tokens,
        max_context=args.max_context,
        temperature=args.temperature,
        sampled_share=args.sampled_share,
        sampled_temperature=args.sampled_temperature,
        top_p=args.top_p,
        seed=args.seed,
        max_loop_share=args.max_loop_share,
        strict=args.strict,
    )


def _endpoint(args: Namespace) -> EndpointConfig | None:
    if args.endpoint is None:
        if args.model or args.return_token_ids or args.api_key_env:
            raise ConfigError("--model, --return-token-ids and --api-key-env need an --endpoint")
        return None
    name: str | None = args.api_key_env
    key = None if name is None else os.environ.get(name)
    if name is not None and not key:
        raise ConfigError(f"--api-key-env {name}: that environment variable is not set")
    return EndpointConfig(
        url=args.endpoint,
        model=args.model or "",
        concurrency=args.concurrency,
        retries=args.retries,
        timeout=args.timeout,
        api_key=key,
        returns_token_ids=args.return_token_ids,
    )


def _load(args: Namespace, endpoint: EndpointConfig | None, folder: Path) -> Asked:
    if endpoint is None:
        local = load_local(args, settings_file=folder / SETTINGS_FILE)
        if local.max_context < args.max_context:
            raise ConfigError(
                f"there is room for {local.max_context} tokens a request, not for --max-context "
                f"{args.max_context}; lower it, or raise --kv-memory"
            )
        return Asked(Writer(local.renderer, local.vocab_size), local.source)
    writer = load_tokenizer(args)
    source = EndpointGenerator(endpoint, writer.renderer)
    if not args.pack:
        source.check()
    return Asked(writer, source)


def _regeneration(
    folder: Path, files: ConversationFiles, config: RegenerateConfig, asked: Asked
) -> Regeneration:
    return Regeneration(
        folder,
        files,
        asked.writer.renderer,
        config,
        asked.source,
        vocab_size=asked.writer.vocab_size,
    )


def _standing(tally: Tally) -> Standing:
    return Standing(tally.num_settled, tally.num_turns, tally.new_tokens)


def show_report(report: Report) -> None:
    """The counts on stderr, then the first of the rows that have no answer."""
    for name, value in report.counts.items():
        shown = _counted(cast(Mapping[str, object], value)) if isinstance(value, dict) else value
        say(f"{name.replace('_', ' ')}: {shown}")
    for problem in report.shown:
        say(f"{problem.where}: {problem.kind}: {problem.reason}")
    if report.finished:
        say(f"{report.folder} is finished")
    else:
        say(
            f"{report.num_failed} requests failed: the same command tries them again, with --pack "
            "it finishes without them"
        )


def _counted(kinds: Mapping[str, object]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in kinds.items()) or "none"


def _document(report: Report) -> dict[str, object]:
    return {
        "folder": str(report.folder),
        "finished": report.finished,
        **report.counts,
        "shown": [problem._asdict() for problem in report.shown],
    }
