"""`Head`: the fields that every document of one response repeats.

It counts nothing.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Head:
    """`created` is Unix seconds."""

    id: str
    kind: str
    model: str
    created: int

    def document(self, choices: list[dict[str, object]]) -> dict[str, object]:
        """A response, or a chunk of one, with these choices."""
        return {
            "id": self.id,
            "object": self.kind,
            "created": self.created,
            "model": self.model,
            "choices": choices,
        }
