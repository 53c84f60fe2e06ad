"""One compilation, run inside a process that may be killed: compile, try out, serialize.

It limits nothing itself; see `worker`.
"""

import random
import re
import time
from collections.abc import Callable

import xgrammar

from blockdraft.structured.compile_request import CompileJob, CompileRefusal
from blockdraft.structured.native import unpack

WALK_LEN = 48
NUM_WALKS = 3
WALK_SECONDS = 1.0

_ORIGIN = re.compile(r"\[\d\d:\d\d:\d\d\] \S+?:\d+: ")
_CHECK = re.compile(r"Check failed: \(.*?\) is \w+: ")
_WARNING = re.compile(r"Warning: (.*)")


def compile_job(
    job: CompileJob, info: xgrammar.TokenizerInfo, read_warnings: Callable[[], str]
) -> bytes:
    """The serialized grammar. Raises CompileRefusal."""
    compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)
    try:
        compiled = _compile(compiler, job)
    except RuntimeError as error:
        raise CompileRefusal(_readable(str(error))) from error
    if warning := _WARNING.search(read_warnings()):
        raise CompileRefusal(f"a part of it would be ignored ({warning[1].strip()})")
    _try_out(compiled, info, job.step_seconds)
    text = compiled.serialize_json().encode()
    if len(text) > job.max_compiled_bytes:
        raise CompileRefusal(
            f"it takes {len(text)} bytes when compiled and the limit is {job.max_compiled_bytes}"
        )
    return text


def _compile(compiler: xgrammar.GrammarCompiler, job: CompileJob) -> xgrammar.CompiledGrammar:
    if job.dialect == "json_schema":
        return compiler.compile_json_schema(job.text)
    if job.dialect == "regex":
        return compiler.compile_regex(job.text)
    if job.dialect == "structural_tag":
        return compiler.compile_structural_tag(job.text)
    return compiler.compile_grammar(job.text)


def _readable(message: str) -> str:
    """xgrammar's message without its own file names and times, in one line."""
    return " ".join(_CHECK.sub("", _ORIGIN.sub("", message)).split())[:500]


def _try_out(
    compiled: xgrammar.CompiledGrammar, info: xgrammar.TokenizerInfo, step_seconds: float
) -> None:
    """Write some outputs, to find what only shows then: a dead end, or far too many readings.

    The first walk repeats its token as long as it may (the worst case of nested repetition), the
    others are random. It finds no dead end that lies off its walks.
    """
    deadline = time.thread_time() + WALK_SECONDS
    words = xgrammar.allocate_token_bitmask(1, info.vocab_size)
    stop_ids = list(info.stop_token_ids)
    for seed in range(NUM_WALKS):
        rng = random.Random(seed)
        matcher = xgrammar.GrammarMatcher(compiled)
        written: list[int] = []
        for _ in range(WALK_LEN):
            started = time.thread_time()
            matcher.fill_next_token_bitmask(words)
            allowed = unpack(words[0], info.vocab_size)
            if not allowed.any():
                text = b"".join(info.decoded_vocab[i] for i in written).decode(errors="replace")
                raise CompileRefusal(f"no text can follow {text!r}: the grammar has a dead end")
            allowed[stop_ids] = False
            going_on = allowed.nonzero().view(-1)
            if not len(going_on) or started > deadline:
                break
            if seed == 0 and written and allowed[written[-1]]:
                token_id = written[-1]
            else:
                token_id = int(going_on[rng.randrange(len(going_on)) if seed else 0])
            matcher.accept_token(token_id)
            written.append(token_id)
            if time.thread_time() - started > step_seconds:
                raise CompileRefusal(
                    f"it is too ambiguous: after {len(written)} tokens one more takes over "
                    f"{step_seconds:g} s; nest no repetition in a repetition"
                )
