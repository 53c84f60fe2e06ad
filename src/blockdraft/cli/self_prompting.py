"""What `blockdraft data self-prompt` does: load, sample, report.

What is kept is in `data/self_prompt_filter.py`.
"""

from argparse import Namespace
from pathlib import Path

from blockdraft.cli.answer_loading import load_local
from blockdraft.cli.answer_progress import Standing, watch
from blockdraft.cli.console import emit_json, say
from blockdraft.data.leaks import read_eval
from blockdraft.data.self_prompt import SelfPromptConfig, SelfPrompting
from blockdraft.data.sources import parse_source


def self_prompt(args: Namespace) -> int:
    """Run the command; settings and evaluation prompts are checked before anything is loaded."""
    config = SelfPromptConfig(
        count=args.count,
        start=args.start,
        category=args.category,
        temperature=args.temperature,
        top_p=args.top_p,
        max_new_tokens=args.max_new_tokens,
        seed=args.seed,
    )
    path = Path(args.out)
    known = [turn for name in args.eval for turn in read_eval(parse_source(name))]
    with watch("prompts") as show:
        settings_file = path.with_name(f"{path.name}.settings.json")
        writer = load_local(args, settings_file=settings_file)
        run = SelfPrompting(
            path,
            writer.renderer,
            config,
            writer.source,
            target=args.target,
            eval_turns=known,
        )
        try:
            run.run(lambda t: show(Standing(t.kept, t.wanted, t.new_tokens)))
        except KeyboardInterrupt:
            say(
                f"interrupted after {run.tally.kept:,} of {config.count:,} prompts; the same "
                "command goes on from there"
            )
            return 130
    counts = run.tally.as_dict()
    for name, value in counts.items():
        say(f"{name}: {value}")
    say(f"{path} is written, {run.manifest_path.name} says how")
    if args.json:
        emit_json({"file": str(path), **counts}, indent=2)
    return 0
