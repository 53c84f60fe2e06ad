"""Tests of the workers' protocol: stops, tau, and lines that libraries can't disturb."""

import json
import subprocess
import sys
from pathlib import Path
from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from workers.protocol import (
    Request,
    Settings,
    accepted_length,
    peak_memory_bytes,
    request_line,
    settings_line,
    through_stop,
)

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"

NOISY_WORKER = """
import os, sys
sys.path.insert(0, os.getcwd())
from workers.protocol import Answer, Loaded, serve

def load(settings):
    print("noise"); os.write(1, b"more noise"); sys.stdout.flush()
    if settings.mode == "broken":
        raise RuntimeError("first line\\nsecond line")
    return Loaded(versions={"toy": "1"}, notes=(settings.model,), answer=answer)

def answer(request):
    print("noise")
    if not request.prompt_ids:
        raise ValueError("no prompt")
    ids = tuple(range(request.prompt_ids[0], request.prompt_ids[0] + 9))
    return Answer(token_ids=ids, seconds=0.5, steps=2)

serve(load)
"""


def talk(mode: str, requests: list[Request]) -> tuple[int, list[dict[str, object]]]:
    """Exit status and parsed output lines of the noisy worker."""
    settings = Settings(mode=mode, model="folder", dtype="float32", threads=1)
    lines = settings_line(settings) + "".join(request_line(request) for request in requests)
    finished = subprocess.run(
        [sys.executable, "-c", NOISY_WORKER],
        cwd=BENCHMARKS,
        input=lines,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    parsed = [cast(dict[str, object], json.loads(line)) for line in finished.stdout.splitlines()]
    return finished.returncode, parsed


def request(prompt_ids: tuple[int, ...], max_new_tokens: int, *stop_ids: int) -> Request:
    return Request(prompt_ids=prompt_ids, max_new_tokens=max_new_tokens, stop_ids=stop_ids)


def test_libraries_that_print_do_not_reach_the_protocol() -> None:
    status, (ready, stopped, limited, failed, after) = talk(
        "plain",
        [request((10,), 99, 12), request((10,), 4), request((), 4), request((10,), 1)],
    )
    assert status == 0
    assert ready == {"ready": True, "versions": {"toy": "1"}, "notes": ["folder"]}
    assert stopped["token_ids"] == [10, 11, 12]
    assert (stopped["seconds"], stopped["steps"], stopped["tau"]) == (0.5, 2, 1.0)
    assert limited["token_ids"] == [10, 11, 12, 13]
    assert failed == {"error": "ValueError: no prompt"}
    assert after["token_ids"] == [10]


def test_failed_load_is_one_error_line() -> None:
    assert talk("broken", []) == (1, [{"error": "RuntimeError: first line"}])


@given(st.lists(st.integers(0, 5)), st.lists(st.integers(0, 5), max_size=2))
def test_through_stop_cuts_after_the_first_stop(ids: list[int], stop_ids: list[int]) -> None:
    kept = through_stop(ids, stop_ids)
    assert list(kept) == ids[: len(kept)]
    assert not set(kept[:-1]) & set(stop_ids)
    assert len(kept) == len(ids) or kept[-1] in stop_ids


def test_accepted_length_leaves_out_the_prefill_token() -> None:
    assert accepted_length(24, 23) == 1.0
    assert accepted_length(11, 5) == 2.0
    assert accepted_length(1, 0) is None
    assert accepted_length(8, None) is None


def test_peak_memory_is_at_least_an_interpreter() -> None:
    assert 5_000_000 < peak_memory_bytes() < 100_000_000_000
