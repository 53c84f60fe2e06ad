"""The framing of events."""

import json
import sys

from blockdraft.serving.answers.sse import event


def test_an_event_is_one_line_for_every_reader() -> None:
    """Clients that split with str.splitlines (httpx does) must get it whole, whatever its text."""
    document = {"text": "".join(map(chr, [*range(0x3000), *range(0xE000, 0x10100)]))}
    first, *rest = event(document).decode().splitlines()
    assert rest == [""]
    assert json.loads(first.removeprefix("data: ")) == document


def test_other_text_is_sent_as_it_is() -> None:
    assert event({"text": "\u00e9" + chr(sys.maxunicode)}) == (
        b'data: {"text":"\xc3\xa9\xf4\x8f\xbf\xbf"}\n\n'
    )
