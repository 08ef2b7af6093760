"""Counters of a server, in the text form that Prometheus reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from svod.base.locks import reset_lock

_TIMES = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)  # seconds
_HELP = {
    "requests": "Requests by path and status.",
    "answers": "Answers that were begun.",
    "answers_cancelled": "Answers that ended because nobody waited for them.",
    "prompt_tokens": "Tokens of prompts.",
    "prompt_tokens_shared": "Tokens of prompts whose keys and values were there already.",
    "answer_tokens": "Tokens of answers.",
}


class Metrics:
    """What has happened since the server began."""

    def __init__(self) -> None:
        self._lock = reset_lock()
        self._requests: Counter[tuple[str, int]] = Counter()
        self._counts: Counter[str] = Counter()
        self._times = {name: [0] * (len(_TIMES) + 1) for name in ("first_token", "answer")}
        self._sums = dict.fromkeys(self._times, 0.0)

    def request(self, path: str, status: int) -> None:
        with self._lock:
            self._requests[path, status] += 1

    def began(self, prompt: int) -> None:
        with self._lock:
            self._counts["answers"] += 1
            self._counts["prompt_tokens"] += prompt

    def first_token(self, seconds: float) -> None:
        self._time("first_token", seconds)

    def ended(self, tokens: int, shared: int, seconds: float, is_cut: bool) -> None:
        with self._lock:
            self._counts["answer_tokens"] += tokens
            self._counts["prompt_tokens_shared"] += shared
            self._counts["answers_cancelled"] += is_cut
        self._time("answer", seconds)

    def _time(self, name: str, seconds: float) -> None:
        with self._lock:
            self._sums[name] += seconds
            place = sum(seconds > bound for bound in _TIMES)
            self._times[name][place] += 1

    def text(self, state: Mapping[str, int]) -> str:
        """Everything, with the state of now as gauges."""
        lines: list[str] = []

        def head(name: str, kind: str, about: str) -> str:
            lines.extend([f"# HELP {name} {about}", f"# TYPE {name} {kind}"])
            return name

        with self._lock:
            name = head("svod_requests_total", "counter", _HELP["requests"])
            for (path, status), count in sorted(self._requests.items()):
                lines.append(f'{name}{{path="{path}",status="{status}"}} {count}')
            for key in list(_HELP)[1:]:
                name = head(f"svod_{key}_total", "counter", _HELP[key])
                lines.append(f"{name} {self._counts[key]}")
            for key, value in state.items():
                name = head(f"svod_{key}", "gauge", f"{key.replace('_', ' ')} now")
                lines.append(f"{name} {value}")
            for key, counts in self._times.items():
                name = head(f"svod_{key}_seconds", "histogram", f"seconds to {key}")
                total = 0
                for bound, count in zip(_TIMES, counts, strict=False):
                    total += count
                    lines.append(f'{name}_bucket{{le="{bound:g}"}} {total}')
                total += counts[-1]
                lines.append(f'{name}_bucket{{le="+Inf"}} {total}')
                lines.append(f"{name}_sum {self._sums[key]:.6f}")
                lines.append(f"{name}_count {total}")
        return "\n".join(lines) + "\n"
