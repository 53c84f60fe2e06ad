"""One tokenizer for all threads: requests are encoded on some while the engine decodes on its own.

The Rust tokenizer raises "Already borrowed" when it is set up anew while another thread uses it.
"""

import random
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, cast

import pytest

from blockdraft.testing.chat import CHATML, chat_codec

NUM_ENCODING, ROUNDS = 5, 12
TEXT = "abc \u00e9\u6f22"


class Backend(Protocol):
    def enable_truncation(self, max_length: int) -> None: ...


class FastTokenizer(Protocol):
    backend_tokenizer: Backend


@pytest.fixture(autouse=True)
def restless() -> Iterator[None]:
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


@pytest.mark.parametrize("truncates", [False, True])
def test_encoding_in_threads_while_another_one_decodes(truncates: bool) -> None:
    """Also where the tokenizer's file truncates, which the first use of it switches off."""
    codec = chat_codec(CHATML)
    known = codec.encode(TEXT * 20)
    if truncates:
        fast = cast(FastTokenizer, cast(object, codec.tokenizer))
        fast.backend_tokenizer.enable_truncation(max_length=5)
    start = threading.Barrier(NUM_ENCODING + 1)
    over = threading.Event()

    def encode(seed: int) -> None:
        rng = random.Random(seed)
        start.wait()
        for _ in range(ROUNDS):
            text = "".join(rng.choices(TEXT, k=rng.randint(1, 2000)))
            assert codec.decode(codec.encode(text)) == text
            chat = codec.chat([{"role": "user", "content": text}])
            assert text in codec.decode(chat)

    def decode() -> int:
        start.wait()
        count = 0
        while not over.is_set():
            assert codec.decode(known) == TEXT * 20
            count += 1
        return count

    with ThreadPoolExecutor(NUM_ENCODING + 1) as pool:
        decoding = pool.submit(decode)
        encoding = [pool.submit(encode, seed) for seed in range(NUM_ENCODING)]
        try:
            for each in encoding:
                each.result(timeout=60)
        finally:
            over.set()
        assert decoding.result(timeout=60) > 0
