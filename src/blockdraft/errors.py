"""The exception tree: every error that a user can cause, each saying what, where and what to do.

It does not format tracebacks or choose exit codes; that is the command line's duty.
"""


class Error(Exception):
    """Base of all errors that Blockdraft raises on purpose; the message is meant for people."""


class ConfigError(Error):
    """A setting (flag, option, configuration field) is out of range, unknown or contradictory."""


class CheckpointError(Error):
    """A drafter or target checkpoint is missing, damaged, of another format or does not fit."""


class UnsupportedTarget(Error):
    """The target model can't be decoded losslessly here; raised when it is loaded, never later."""


class RequestError(Error):
    """One request can't be served as asked (prompt, parameters); other requests go on."""


class DrafterError(Error):
    """A drafter broke the contract of the `Drafter` seam (docs/architecture.md)."""


class NumericsError(Error):
    """Logits, hidden states, a loss or a gradient are not finite: nothing can be made of them."""


class TrainingFault(Error):
    """A training step failed for want of memory; the last checkpoint is intact."""


class EngineFault(Error):
    """A step of the engine failed; its requests are lost, those that wait go on."""


class Overloaded(Error):
    """As many requests wait as may wait; the same request can be served a little later."""


class Draining(Error):
    """The server is shutting down: it takes no new requests, or gave up one that was left."""


class FetchError(Error):
    """A model that has to be downloaded once could not be fetched."""
