"""`settle_drafter`: the drafter of a command, stated and agreed to before anything is downloaded.

Which one it is decides the registry; loading is done in `pair.py`.
"""

import logging
import sys
from argparse import Namespace

from blockdraft.api import choose_drafter
from blockdraft.builtin import builtin_drafter_path
from blockdraft.builtin.published import find_published, published_for
from blockdraft.builtin.published_entry import PublishedDrafter
from blockdraft.checkpoint.default_drafter import drafter_text, known_default, local_id
from blockdraft.checkpoint.published import differences
from blockdraft.cli.console import say
from blockdraft.drafter import DrafterConfig
from blockdraft.errors import ConfigError

_LOGGER = logging.getLogger("blockdraft")


def settle_drafter(args: Namespace) -> str:
    """The drafter to use, kept in `args.drafter`; a published one is stated on stderr.

    One that is not in the hub's cache is downloaded only with --yes or after a yes on the terminal.
    Raises ConfigError without it, and where no drafter is known.
    """
    target: str = args.target
    if args.drafter is not None:
        return args.drafter
    default = None if builtin_drafter_path(target) is not None else known_default(target)
    if default is not None:
        wanted = default.chosen
        if args.drafter_revision is not None:  # of which more, or other things, may be known
            wanted = find_published(f"{wanted.id}@{args.drafter_revision}") or wanted
        say(f"drafter: {drafter_text(wanted)}")
        if default.reason:
            say(f"  {default.reason}")
        local = local_id(wanted, args.drafter_revision)
        if local is None:
            _agree(wanted, yes=bool(args.yes))
        else:
            say(f"  on this machine: {local}")
    args.drafter = choose_drafter(target, None, revision=args.drafter_revision, download=True)
    return args.drafter


def warn_of_thinking(args: Namespace, drafter: str) -> None:
    """Tell when the request's thinking mode is not, or may not be, the one of the training.

    Thinking changes how many drafts are accepted, never the text. Commands whose requests come
    later have no `template_arg`; their users read the mode in the drafter's description.
    """
    entry = find_published(drafter)
    given: list[tuple[str, object]] | None = getattr(args, "template_arg", None)
    if entry is None or entry.thinking is None or given is None or getattr(args, "raw", False):
        return
    wanted = entry.thinking == "on"
    asked = dict(given).get("enable_thinking")
    if asked is wanted:
        return
    found = "leave that to the chat template" if asked is None else f"have it {_word(asked)}"
    _LOGGER.warning(
        "%s was trained on answers with thinking %s and these prompts %s: fewer drafts may be "
        "accepted, the text stays the same; --template-arg enable_thinking=%s fits it",
        entry.id,
        entry.thinking,
        found,
        str(wanted).lower(),
    )


def warn_of_other_files(drafter: str, config: DrafterConfig) -> None:
    """Tell when a published drafter is not what is known of it: its files were replaced."""
    entry = find_published(drafter)
    if entry is None or not (different := differences(entry, config)):
        return
    earlier = [one for one in published_for(entry.target) if one.id == entry.id and one.replaced]
    is_earlier = any(not differences(one, config) for one in earlier)
    _LOGGER.warning(
        "%s: %s (%s); figures published for it may not hold",
        drafter,
        "these are its earlier files" if is_earlier else "its files are others than those known",
        "; ".join(different),
    )


def _agree(entry: PublishedDrafter, *, yes: bool) -> None:
    """Return when it may be downloaded, raise ConfigError when not."""
    if yes:
        say(f"downloading {entry.id} from the Hugging Face hub")
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise ConfigError(
            f"{entry.id} is not on this machine and nobody can be asked: add --yes to download it "
            f"({entry.size_text}), or give --drafter none for plain decoding"
        )
    sys.stderr.write(f"download it from the Hugging Face hub ({entry.size_text})? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise ConfigError(
            "nothing was downloaded: give --drafter none for plain decoding, or another drafter"
        )


def _word(asked: object) -> str:
    return ("on" if asked else "off") if isinstance(asked, bool) else f"as {asked!r}"
