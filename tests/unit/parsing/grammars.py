"""Grammars of calls at work: what they accept, and which tokens of a vocabulary may come next."""

from collections.abc import Sequence

import xgrammar

from blockdraft.parsing import choose_tool_format
from blockdraft.parsing.registry import ToolFormat
from blockdraft.structured.spec import GrammarSpec


def format_of(name: str) -> ToolFormat:
    chosen = choose_tool_format(None, name)
    assert chosen is not None
    return chosen


class Matching:
    """Structural tags over `vocab`, whose last token ends the text."""

    def __init__(self, vocab: Sequence[str]) -> None:
        self._vocab = list(vocab)

    def matcher_of(self, spec: GrammarSpec) -> xgrammar.GrammarMatcher:
        info = xgrammar.TokenizerInfo(self._vocab, stop_token_ids=[len(self._vocab) - 1])
        compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)
        return xgrammar.GrammarMatcher(compiler.compile_structural_tag(spec.value))

    def accepts(self, spec: GrammarSpec, text: str) -> bool:
        matcher = self.matcher_of(spec)
        return matcher.accept_string(text) and matcher.is_completed()

    def allowed(self, matcher: xgrammar.GrammarMatcher) -> list[int]:
        """The ids that its mask lets through, at least one."""
        mask = xgrammar.allocate_token_bitmask(1, len(self._vocab))
        matcher.fill_next_token_bitmask(mask)
        words = [int(word) for word in mask[0]]
        found = [i for i in range(len(self._vocab)) if words[i // 32] >> (i % 32) & 1]
        assert found
        return found
