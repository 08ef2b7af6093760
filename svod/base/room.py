"""How much memory this process may still take, as far as the system says.

LLVM ends the process where it gets no memory, so what it is about to need is compared with this
first. Limits of the process, of its control group and of the machine count; reclaimable pages of
files are free.
"""

from __future__ import annotations

from pathlib import Path

_UNLIMITED = 1 << 60  # version 1 of control groups writes "no limit" as a number near 2**63


def room(
    root: Path = Path("/sys/fs/cgroup"), process: Path = Path("/proc/self"),
    machine: Path = Path("/proc/meminfo"),
) -> int | None:  # fmt: skip
    """Bytes that can still be had; None where nothing limits them or the system does not say."""
    limits = [_of_process(process), _of_group(root, process), _of_machine(machine)]
    known = [limit for limit in limits if limit is not None]
    return max(0, min(known)) if known else None


def _of_process(process: Path) -> int | None:
    """What ``ulimit -v`` and ``ulimit -d`` leave."""
    try:
        import resource
    except ImportError:  # not on Windows
        return None
    status = _fields(_text(process / "status"))
    left = []
    for limit, used in ((resource.RLIMIT_AS, "VmSize"), (resource.RLIMIT_DATA, "VmData")):
        most, _ = resource.getrlimit(limit)
        if most != resource.RLIM_INFINITY and used in status:
            left.append(most - status[used])
    return min(left, default=None)


def _of_group(root: Path, process: Path) -> int | None:
    """What the control group and its parents leave, in both versions."""
    left = []
    for line in _text(process / "cgroup").splitlines() or ["0::/"]:
        _, controllers, place = (*line.split(":", 2), "", "", "")[:3]
        if controllers and "memory" not in controllers.split(","):
            continue
        base = root / "memory" if controllers else root
        parts = Path(place.lstrip("/")).parts
        for depth in range(len(parts) + 1):
            group = base.joinpath(*parts[:depth])
            most = _number(group / "memory.max", group / "memory.limit_in_bytes")
            used = _number(group / "memory.current", group / "memory.usage_in_bytes")
            if most is not None and used is not None and most < _UNLIMITED:
                stat = dict(_pairs(_text(group / "memory.stat")))
                files = stat.get("total_inactive_file", stat.get("inactive_file", 0))
                left.append(most - used + files)
    return min(left, default=None)


def _of_machine(path: Path) -> int | None:
    return _fields(_text(path)).get("MemAvailable")


def _fields(text: str) -> dict[str, int]:
    """Lines such as ``VmSize: 1234 kB``, in bytes."""
    lines = [line.replace(":", " ").split() for line in text.splitlines()]
    found = [words for words in lines if len(words) == 3 and words[2] == "kB"]
    return {words[0]: int(words[1]) << 10 for words in found if words[1].isdigit()}


def _pairs(text: str) -> list[tuple[str, int]]:
    lines = [line.split() for line in text.splitlines()]
    return [(words[0], int(words[1])) for words in lines if len(words) == 2 and words[1].isdigit()]


def _number(*paths: Path) -> int | None:
    """The number in the first of these files that there is; None for "max" and for no file."""
    for path in paths:
        text = _text(path).strip()
        if text:
            return int(text) if text.isdigit() else None
    return None


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
