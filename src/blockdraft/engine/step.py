"""`Step`: one step of the engine, from the scheduler's plan to committed tokens.

    plan      the scheduler admits, preempts, moves rows and hands out prompt chunks
    draft     the width controller decides; one drafter pass over the requests that speculate
    verify    one target pass: prompt chunks, anchors and drafts, as flat rows
    commit    each request's own chooser decides; kept rows become context

A failure of the drafter costs its drafts and nothing else; one request's failure is its own.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from torch import Tensor

from blockdraft.decoding.choose import DraftedBlock
from blockdraft.decoding.completion import Commit, read_logprobs
from blockdraft.engine.context import DrafterContexts
from blockdraft.engine.deciding import Likeliest, Wanted, decide_drafts, likeliest
from blockdraft.engine.plan import PrefillChunk, StepPlan
from blockdraft.engine.running import Event, Failed, Running
from blockdraft.engine.sides import DraftRequest, Feed, PassResult
from blockdraft.engine.width import Speculating, StepOutcome, WidthDecision
from blockdraft.errors import EngineFault, Error

if TYPE_CHECKING:
    from blockdraft.engine.engine import EngineParts

NO_DRAFT = DraftedBlock((), None, 0)

TIMED_CATCH_UP = 64
"""More tokens than this taken into the drafter's contexts are not the price of a usual draft: they
waited while nothing was drafted.
"""

Decided = TypeVar("Decided")

_LOGGER = logging.getLogger("blockdraft")


@dataclass(frozen=True, slots=True)
class Drafted:
    """What drafting gave: the decision it followed and a block for each decoding request."""

    decision: WidthDecision
    blocks: Mapping[int, DraftedBlock]
    seconds: float | None = None
    catch_up_seconds: float = 0.0
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Slice:
    """One feed's share of a pass; `best` is filled where the likeliest tokens were looked for."""

    feed: Feed
    logits: Tensor
    features: Tensor | None
    best: Likeliest


@dataclass(slots=True)
class Tally:
    """What the width controller is told of a step."""

    keys: list[int]
    verify: list[int]
    accepted: list[int]


class Step:
    """Runs once. Requests that fail on their own are dropped from the scheduler here."""

    def __init__(
        self,
        parts: "EngineParts",
        contexts: DrafterContexts | None,
        requests: Mapping[int, Running],
    ) -> None:
        self._parts = parts
        self._contexts = contexts
        self._requests = requests
        self.num_preempted = 0
        self.drafter_failed = False
        self.outcomes: dict[int, Event] = {}
        """What was decided so far, also when the step breaks off."""

    def run(self) -> list[Event]:
        plan = self._parts.scheduler.plan()
        self._follow(plan)
        drafted = self._draft(plan)
        self.drafter_failed = drafted.failed
        feeds = [*map(self._prompt_feed, plan.prefill), *self._block_feeds(plan, drafted)]
        if not feeds:
            return []
        started = self._parts.clock()
        result = self._parts.target.run(feeds)
        best = self._likeliest(feeds, result)
        seconds = self._parts.clock() - started
        tally = Tally([], [], [])
        needs_token = {chunk.key: chunk.needs_token for chunk in plan.prefill}
        for part in _slices(feeds, result, best):
            try:
                if part.feed.is_prompt:
                    commit = self._take_prompt(part, needs_token[part.feed.key])
                else:
                    commit = self._take_block(part, drafted.blocks[part.feed.key], tally)
            except Error as error:
                self._parts.scheduler.fail(part.feed.key)
                self.outcomes[part.feed.key] = Event(part.feed.key, Failed(error))
                continue
            if commit is not None:
                self.outcomes[part.feed.key] = Event(part.feed.key, commit)
        self._catch_up_full()
        self._observe(plan, drafted, tally, seconds)
        return [self.outcomes[key] for key in sorted(self.outcomes)]

    def _follow(self, plan: StepPlan) -> None:
        """Carry out what the plan says about memory."""
        self.num_preempted = len(plan.preempted)
        for key in plan.preempted:
            self._parts.target.forget(key)
            if self._contexts is not None:
                self._contexts.forget(key)
        self._parts.target.move(plan.moves)
        if self._contexts is not None:
            self._contexts.side.move(plan.moves)
        now = self._parts.clock()
        for admission in plan.admitted:
            if self._contexts is not None:
                self._contexts.open(admission.key, admission.num_reused)
            self._requests[admission.key].admit(admission.num_reused, now)

    def _draft(self, plan: StepPlan) -> Drafted:
        """Decide widths and draft; every decoding request gets a block, maybe an empty one."""
        asked = [Speculating(key, self._requests[key].widest_block) for key in plan.decoding]
        num_other_rows = sum(chunk.count for chunk in plan.prefill)
        decision = self._parts.controller.decide(asked, num_other_rows)
        blocks = dict.fromkeys(plan.decoding, NO_DRAFT)
        contexts = self._contexts
        if contexts is None or decision.num_drafting == 0:
            return Drafted(decision, blocks)
        widths = {
            key: width
            for key, width in zip(plan.decoding, decision.verify, strict=True)
            if width > 1 and contexts.can_draft(key)
        }
        if not widths:
            return Drafted(decision, blocks)
        started = self._parts.clock()
        try:
            num_taken = contexts.catch_up(widths, self._parts.scheduler.base)
            caught_up = self._parts.clock()
            requests = [self._draft_request(key, decision.draft_width) for key in widths]
            wanted = [
                Wanted(running.request.chooser, running.position, width - 1)
                for key, width in widths.items()
                for running in (self._requests[key],)
            ]
            drafts = contexts.side.draft(requests)
            decided = decide_drafts(drafts, wanted, self._parts.spec.vocab_size)
        except Exception as error:  # noqa: BLE001  a drafter may be anything; drafts are optional
            _LOGGER.warning("the drafter failed, this step goes on without drafts: %r", error)
            return Drafted(decision, blocks, failed=True)
        ended = self._parts.clock()
        blocks |= dict(zip(widths, decided, strict=True))
        if num_taken <= TIMED_CATCH_UP:
            return Drafted(decision, blocks, ended - started)
        return Drafted(decision, blocks, ended - caught_up, caught_up - started)

    def _draft_request(self, key: int, width: int) -> DraftRequest:
        scheduler = self._parts.scheduler
        anchor = self._requests[key].request.emission.ids[-1]
        return DraftRequest(key, scheduler.base(key), scheduler.context_len(key), anchor, width)

    def _prompt_feed(self, chunk: PrefillChunk) -> Feed:
        scheduler = self._parts.scheduler
        known = scheduler.known_ids(chunk.key)
        ids = tuple(known[chunk.start : chunk.start + chunk.count])
        base = scheduler.base(chunk.key)
        return Feed(
            chunk.key,
            base,
            chunk.start,
            ids,
            is_prompt=True,
            wants_logits=chunk.needs_token,
            was_decoded=chunk.was_decoded,
        )

    def _block_feeds(self, plan: StepPlan, drafted: Drafted) -> Iterator[Feed]:
        scheduler = self._parts.scheduler
        for key in plan.decoding:
            anchor = self._requests[key].request.emission.ids[-1]
            ids = (anchor, *drafted.blocks[key].ids)
            context_len = scheduler.context_len(key)
            yield Feed(
                key, scheduler.base(key), context_len, ids, is_prompt=False, wants_logits=True
            )

    def _likeliest(self, feeds: Sequence[Feed], result: PassResult) -> Likeliest:
        """The likeliest token of every row, when any request wants just that."""
        choosers = [self._requests[f.key].request.chooser for f in feeds if f.wants_logits]
        if any(chooser.verifies_argmax for chooser in choosers):
            return likeliest(result.logits)
        return Likeliest([], [])

    def _take_prompt(self, part: Slice, needs_token: bool) -> Commit | None:
        """A prompt chunk is context now; the last one also decides the first token."""
        feed, running = part.feed, self._requests[part.feed.key]
        emitted: list[int] = []
        if needs_token:
            emitted += _guarded(
                running, lambda: running.emit_first(_verify(running, NO_DRAFT, part))
            )
        self._add_context(feed, feed.ids, part.features, ends=running.is_finished)
        complete = self._complete(feed.key, feed.context_len + len(feed.ids))
        self._parts.scheduler.advance_prefill(feed.key, len(feed.ids), complete)
        if not needs_token:
            return None
        self._parts.scheduler.first_token(feed.key, emitted[0])
        return self._commit(running, tuple(emitted), 0, part.logits)

    def _take_block(self, part: Slice, block: DraftedBlock, tally: Tally) -> Commit:
        """Decide, keep the accepted rows, make the last emitted token the new anchor."""
        feed, running = part.feed, self._requests[part.feed.key]
        decided = _guarded(running, lambda: _verify(running, block, part))
        emitted = _guarded(running, lambda: running.emit(block, decided))
        kept = len(emitted)
        self._parts.target.commit(feed, range(kept))
        features = None if part.features is None else part.features[:kept]
        new_context = (feed.ids[0], *emitted[:-1])
        self._add_context(feed, new_context, features, ends=running.is_finished)
        complete = self._complete(feed.key, feed.context_len + kept)
        self._parts.scheduler.commit(feed.key, kept, emitted, complete)
        num_accepted = len(decided) - 1
        tally.keys.append(feed.key)
        tally.verify.append(len(feed.ids))
        tally.accepted.append(num_accepted)
        self._watch(block, num_accepted)
        return self._commit(running, emitted, min(num_accepted, kept), part.logits)

    def _add_context(
        self, feed: Feed, ids: tuple[int, ...], features: Tensor | None, *, ends: bool
    ) -> None:
        if self._contexts is None:
            return
        contexts = self._contexts
        contexts.add(feed.key, ids, features)
        if ends and self._parts.reuses:
            # What the drafter lacks can't be reused by a later request.
            base_of = self._parts.scheduler.base
            self._taken_in(lambda: contexts.catch_up([feed.key], base_of))

    def _catch_up_full(self) -> None:
        contexts = self._contexts
        if contexts is not None:
            scheduler = self._parts.scheduler
            self._taken_in(lambda: contexts.catch_up_full(scheduler.running, scheduler.base))

    def _taken_in(self, catch_up: Callable[[], object]) -> None:
        """Let the drafter take in contexts; a failure costs drafts only."""
        try:
            catch_up()
        except Exception as error:  # noqa: BLE001  a drafter may be anything; drafts are optional
            self.drafter_failed = True
            _LOGGER.warning("the drafter failed to take in a context: %r", error)

    def _complete(self, key: int, context_len: int) -> int:
        """How much of a request others may reuse."""
        return context_len if self._contexts is None else self._contexts.complete(key)

    def _commit(
        self, running: Running, emitted: tuple[int, ...], num_accepted: int, logits: Tensor
    ) -> Commit:
        logprobs = read_logprobs(logits, emitted, running.params.logprobs)
        text = _guarded(running, running.request.emission.take_text)
        commit = running.commit(emitted, num_accepted, text, logprobs, self._parts.clock())
        if running.is_finished:
            self._parts.scheduler.finish(running.key)
        return commit

    def _watch(self, block: DraftedBlock, num_accepted: int) -> None:
        alarm = self._parts.alarm
        warnings = [alarm.observe_unusable(block.num_slots - len(block.ids))]
        if block.num_slots:
            warnings.append(alarm.observe(block.num_slots, num_accepted))
        for warning in warnings:
            if warning is not None:
                _LOGGER.warning(warning)

    def _observe(self, plan: StepPlan, drafted: Drafted, tally: Tally, seconds: float) -> None:
        if not plan.decoding:
            return
        outcome = StepOutcome(
            decision=drafted.decision,
            keys=tuple(tally.keys),
            verify=tuple(tally.verify),
            accepted=tuple(tally.accepted),
            num_other_rows=sum(chunk.count for chunk in plan.prefill),
            draft_seconds=drafted.seconds,
            verify_seconds=seconds,
            catch_up_seconds=drafted.catch_up_seconds,
            drafter_failed=drafted.failed,
        )
        self._parts.controller.observe_step(outcome)
        if self._parts.observe is not None:
            self._parts.observe(outcome)


def _verify(running: Running, block: DraftedBlock, part: Slice) -> tuple[int, ...]:
    chooser = running.request.chooser
    if chooser.verifies_argmax:
        return chooser.verify_argmax(block, part.best.ids, part.best.finite, running.position)
    return chooser.verify(block, part.logits, running.position)


def _slices(feeds: Sequence[Feed], result: PassResult, best: Likeliest) -> Iterator[Slice]:
    """Each feed's share of a pass."""
    row = asked = 0
    for feed in feeds:
        num_asked = 0
        if feed.wants_logits:
            num_asked = 1 if feed.is_prompt else len(feed.ids)
        end = asked + num_asked
        features = result.features
        yield Slice(
            feed,
            result.logits[asked:end],
            None if features is None else features[row : row + len(feed.ids)],
            Likeliest(best.ids[asked:end], best.finite[asked:end]),
        )
        row += len(feed.ids)
        asked = end


def _guarded(running: Running, decide: Callable[[], Decided]) -> Decided:
    """A request's own decision; what its processors or its codec raise is its fault alone."""
    try:
        return decide()
    except Error:
        raise
    except Exception as error:
        raise EngineFault(
            f"deciding output token {running.position} failed ({type(error).__name__}: {error}); "
            "look at the request's processors and its decoding of text"
        ) from error
