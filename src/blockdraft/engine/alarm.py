"""Alarms for a drafter that accepts far less than it should: the target hides such faults.

It logs nothing; the caller logs the one text it returns.
"""

import math

from blockdraft.engine.acceptance import acceptance_from_tau

MIN_STEPS = 24
MIN_STEPS_UNRECORDED = 96
NUM_SIGMAS = 4.0
NOTHING = 0.02

CAUSES = (
    "Likely causes: another chat template or thinking mode than in training, wrong tapped layers, "
    "a wrong LM head or vocabulary map, another target than the drafter was trained for, a "
    "quantized target, texts unlike those of the record. The output stays right; only speed is lost"
)


class AcceptanceAlarm:
    """Compares drafts accepted with what the drafter's record promises.

    With a recorded tau it warns once half of the recorded gain over plain decoding (tau - 1, cut to
    the widths really verified) is missed by `NUM_SIGMAS` standard deviations. Without one it warns
    only when practically nothing is accepted. Each kind of warning comes once.
    """

    def __init__(self, recorded_tau: float | None, block_size: int) -> None:
        self._tau = recorded_tau
        self._block_size = block_size
        prob = 0.0 if recorded_tau is None else acceptance_from_tau(recorded_tau, block_size)
        gains = [0.0]
        for k in range(1, block_size):
            gains.append(gains[-1] + prob**k)
        self._gains = gains
        self._num_steps = 0
        self._expected = 0.0
        self._accepted = 0
        self._squares = 0
        self._warned_low = False
        self._warned_unusable = False
        self.num_unusable = 0

    def observe(self, num_verified: int, num_accepted: int) -> str | None:
        """One request of one drafted step: drafts verified (anchor not counted) and accepted.

        Returns the warning when it is due, else None.
        """
        if num_verified < 1 or self._warned_low or not self._gains[1:]:
            return None
        self._num_steps += 1
        self._accepted += num_accepted
        self._squares += num_accepted**2
        self._expected += self._gains[min(num_verified, len(self._gains) - 1)]
        if self._tau is None:
            return self._warn_if_nothing()
        return self._warn_if_low(self._tau)

    def observe_unusable(self, num_slots: int) -> str | None:
        """Draft slots whose logits were not finite; returns a warning for the first ones."""
        if num_slots < 1:
            return None
        self.num_unusable += num_slots
        if self._warned_unusable:
            return None
        self._warned_unusable = True
        return (
            f"drafter: {num_slots} draft slots had logits that are not finite; they are rejected "
            "and count as unusable drafts. Likely causes: a drafter cast to fp16 that overflows "
            "(use bf16 or fp32), damaged weights. The output stays right; only speed is lost"
        )

    def _warn_if_nothing(self) -> str | None:
        num = self._num_steps
        if num < MIN_STEPS_UNRECORDED or self._accepted > NOTHING * num:
            return None
        self._warned_low = True
        return (
            f"drafter: the target accepted {self._accepted} drafts in {num} drafted steps, "
            f"practically nothing. {CAUSES}"
        )

    def _warn_if_low(self, tau: float) -> str | None:
        num = self._num_steps
        if num < MIN_STEPS:
            return None
        half = self._expected / 2
        variance = self._squares - self._accepted**2 / num
        # A run of misses has no spread of its own; a count of rare hits spreads like its mean.
        spread = math.sqrt(max(variance, half))
        if self._accepted + NUM_SIGMAS * spread >= half:
            return None
        self._warned_low = True
        measured = 1 + self._accepted / num
        return (
            f"drafter: acceptance length (tau) {measured:.2f} over {num} drafted steps, recorded "
            f"{tau:.2f} ({1 + self._expected / num:.2f} at the widths used). {CAUSES}"
        )
