"""How many tokens a conversation's prompts are for a target, by its tokenizer alone.

It reads no weights. Answers are not counted: they don't exist yet.
"""

from collections.abc import Callable

from blockdraft.data.conversations import Conversation
from blockdraft.errors import ConfigError
from blockdraft.target import Message, TextCodec
from blockdraft.target.hf_load import load_text
from blockdraft.target.load import Report, resolve_source


def load_counter(
    target: str, revision: str | None, report: Report
) -> Callable[[Conversation], int]:
    """The function that counts for `target`, a built-in name, folder, GGUF file or hub id.

    It counts the first turn in the chat template, system prompt and tools included, and later
    turns as plain text. It raises RequestError for a conversation that the template refuses.
    Raises ConfigError here for a target without a tokenizer or without a chat template.
    """
    text = load_text(resolve_source(target, revision, report), target)
    if text is None:
        raise ConfigError(
            f"the target {target} has no tokenizer, so its tokens can't be counted: use --max-chars"
        )
    if not text.has_chat_template:
        raise ConfigError(
            f"the tokenizer of {target} has no chat template, so its prompts can't be counted: use "
            "--max-chars"
        )
    return lambda conversation: _count(text, conversation)


def _count(text: TextCodec, conversation: Conversation) -> int:
    first, *later = conversation.turns
    messages: list[Message] = []
    if conversation.system is not None:
        messages.append(Message(role="system", content=conversation.system))
    messages.append(Message(role="user", content=first))
    template_args = {} if conversation.tools is None else {"tools": list(conversation.tools)}
    num_later = sum(len(text.encode(turn)) for turn in later)
    return len(text.chat(messages, template_args)) + num_later
