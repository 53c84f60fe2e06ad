"""Conversations to prompt ids, answers back to text, and what a manifest says of the template."""

from collections.abc import Mapping, Sequence

import pytest

from blockdraft.data.conversations import Conversation
from blockdraft.data.rendering import Renderer, RenderingConfig
from blockdraft.errors import ConfigError, RequestError
from blockdraft.target import Message
from blockdraft.testing import ByteTextCodec
from blockdraft.testing.codec import ASSISTANT_ID, BOS_ID, END_ID, USER_ID

TWO_TURNS = Conversation(id="a", source="", turns=("hi", "more"))


def make_renderer(codec: ByteTextCodec | None = None, **settings: object) -> Renderer:
    config = RenderingConfig(**settings)  # pyright: ignore[reportArgumentType]: of several types
    return Renderer(codec or ByteTextCodec(), config, [END_ID])


def test_a_later_turn_holds_the_earlier_answer() -> None:
    ids = make_renderer().prompt_ids(TWO_TURNS, ["yo"])
    assert ids == (
        *(BOS_ID, USER_ID, *b"hi", END_ID),
        *(ASSISTANT_ID, *b"yo", END_ID),
        *(USER_ID, *b"more", END_ID, ASSISTANT_ID),
    )


def test_a_conversations_own_system_text_wins() -> None:
    own = Conversation(id="a", source="", turns=("hi",), system="own")
    renderer = make_renderer(system="given")
    assert [m["content"] for m in renderer.messages(own, [])] == ["own", "hi"]
    assert [m["content"] for m in renderer.messages(TWO_TURNS, [])] == ["given", "hi"]


def test_tools_reach_the_template() -> None:
    tools: tuple[dict[str, object], ...] = ({"name": "clock"},)
    conversation = Conversation(id="a", source="", turns=("hi",), tools=tools)
    renderer = make_renderer(template_args={"enable_thinking": False})
    assert renderer.template_args(conversation) == {
        "enable_thinking": False,
        "tools": [{"name": "clock"}],
    }


def test_the_text_of_an_answer_has_no_stop_token() -> None:
    renderer = make_renderer()
    assert renderer.answer_text([*b"yes", END_ID]) == "yes"
    assert renderer.answer_text(list(b"ye")) == "ye"
    assert renderer.answer_text([]) == ""
    plain_stop = Renderer(ByteTextCodec(), RenderingConfig(), [ord(".")])
    assert plain_stop.answer_text(list(b"yes.")) == "yes"


def test_plain_ids_have_nothing_around_them() -> None:
    assert make_renderer().encode_plain("abc") == tuple(b"abc")
    assert make_renderer().encode_plain("") == ()


def test_the_end_of_an_answer() -> None:
    assert make_renderer().end_of_answer() == END_ID
    assert Renderer(ByteTextCodec(), RenderingConfig(), []).end_of_answer() is None


class NoTemplate(ByteTextCodec):
    has_chat_template = False


def test_a_target_without_a_chat_template() -> None:
    with pytest.raises(ConfigError, match="no chat template"):
        make_renderer(NoTemplate())
    renderer = make_renderer(NoTemplate(), raw=True)
    once = Conversation(id="a", source="", turns=("Once",))
    assert renderer.prompt_ids(once, []) == (BOS_ID, *b"Once")
    with pytest.raises(RequestError, match="raw turn"):
        renderer.prompt_ids(TWO_TURNS, [])
    assert "template_sha256" not in renderer.describe()
    with pytest.raises(ConfigError, match="--raw"):
        make_renderer(raw=True, system="x")


class Fussy(ByteTextCodec):
    """A template that stumbles over some texts, as programs do, and takes no system text."""

    def chat(
        self, messages: Sequence[Message], template_args: Mapping[str, object] | None = None
    ) -> list[int]:
        if messages[0]["role"] == "system":
            raise RequestError("no system text, please")
        if "%" in messages[-1]["content"]:
            raise IndexError("list index out of range")
        return super().chat(messages, template_args)


def test_a_template_that_fails_fails_one_row() -> None:
    """speculators #801: one conversation made the template raise, and all was lost."""
    renderer = make_renderer(Fussy())
    with pytest.raises(RequestError, match="IndexError"):
        renderer.prompt_ids(Conversation(id="a", source="", turns=("100%",)), [])
    assert renderer.prompt_ids(TWO_TURNS, [])


def test_the_fingerprint_tells_templates_apart() -> None:
    prints = [make_renderer(codec).describe()["template_sha256"] for codec in (None, Fussy())]
    assert prints[0] != prints[1]
    assert prints[0] == make_renderer(system="x").describe()["template_sha256"]
