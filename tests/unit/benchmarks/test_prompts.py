"""Tests of the benchmark's prompts: the right ones, and ids that every system can share."""

import pytest

from blockdraft.target import TextCodec
from blockdraft.target.text import ChatMessage
from prompts import NUM_PROMPTS, SETS, BenchmarkPrompt, encode, read_set


class CharacterTokenizer:
    """Each character is its own id; the template is `role:content;` and then `assistant:`."""

    chat_template: object = "a template"

    def __len__(self) -> int:
        return 0x110000

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        return [ord(character) for character in text]

    def decode(
        self, ids: list[int], *, skip_special_tokens: bool, clean_up_tokenization_spaces: bool
    ) -> str:
        return "".join(map(chr, ids))

    def apply_chat_template(
        self,
        conversation: list[ChatMessage],
        *,
        add_generation_prompt: bool,
        tokenize: bool,
        **template_args: object,
    ) -> str:
        turns = "".join(f"{message['role']}:{message['content']};" for message in conversation)
        return turns + ("assistant:" if add_generation_prompt else "")


@pytest.mark.parametrize("name", SETS)
def test_sets_are_the_first_32_in_order(name: str) -> None:
    prompts = read_set(name)
    numbers = [int(prompt.id.replace("/", "-").rsplit("-", 1)[1]) for prompt in prompts]
    assert numbers == list(range(numbers[0], numbers[0] + NUM_PROMPTS))
    assert numbers[0] == (81 if name == "mt_bench" else 0)
    assert all(prompt.text for prompt in prompts)
    assert read_set(name, 3) == prompts[:3]


def test_unknown_set_and_limit_are_refused() -> None:
    with pytest.raises(ValueError, match="gsm8k, humaneval, mt_bench"):
        read_set("math500")
    for limit in (0, 33):
        with pytest.raises(ValueError, match="choose 1 to 32"):
            read_set("gsm8k", limit)


def test_prompts_are_encoded_in_the_chat_template() -> None:
    codec = TextCodec(CharacterTokenizer(), "toy")
    (prompt,) = encode([BenchmarkPrompt(id="a", category="b", text="hi")], codec)
    assert "".join(map(chr, prompt.ids)) == "user:hi;assistant:"
    assert (prompt.id, prompt.category) == ("a", "b")
