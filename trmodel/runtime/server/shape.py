"""The documents of OpenAI's two kinds of completion, whole and in pieces."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


def usage(prompt_tokens: int, completion_tokens: int) -> dict[str, int]:
    """Say how many tokens a request took."""
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
    }


@dataclass(frozen=True)
class Shape:
    """What every document about one request has in common."""

    id: str
    created: int
    model: str
    chat: bool
    include_usage: bool

    def whole(self, texts: list[tuple[str, str]], used: dict[str, int]) -> dict[str, Any]:
        """The answer to a request that is not streamed: text and finish reason of each choice."""
        kind = "chat.completion" if self.chat else "text_completion"
        choices = []
        for index, (text, finish) in enumerate(texts):
            content: dict[str, Any] = (
                {"message": {"role": "assistant", "content": text, "refusal": None}}
                if self.chat
                else {"text": text}
            )
            choices.append(self._choice(index, content, finish))
        return {**self._head(kind), "choices": choices, "usage": used}

    def opening(self, index: int) -> dict[str, Any] | None:
        """What begins a choice of a stream, if something does."""
        if not self.chat:
            return None
        return self._piece([self._choice(index, {"delta": {"role": "assistant", "content": ""}})])

    def piece(self, index: int, text: str, finish: str = "") -> dict[str, Any]:
        """Text of a choice, or its end."""
        if not self.chat:
            return self._piece([self._choice(index, {"text": text}, finish)])
        delta = {"content": text} if text or not finish else {}
        return self._piece([self._choice(index, {"delta": delta}, finish)])

    def last(self, used: dict[str, int]) -> dict[str, Any] | None:
        """What ends a stream, if it is wished for."""
        return {**self._piece([]), "usage": used} if self.include_usage else None

    def _piece(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        head = self._head("chat.completion.chunk" if self.chat else "text_completion")
        return {**head, "choices": choices, **({"usage": None} if self.include_usage else {})}

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}

    @staticmethod
    def _choice(index: int, content: dict[str, Any], finish: str = "") -> dict[str, Any]:
        return {"index": index, **content, "logprobs": None, "finish_reason": finish or None}
