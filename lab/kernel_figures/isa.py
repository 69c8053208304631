"""What the main loop of a kernel does, from AMD's assembly as RADV prints it.

The main loop is the one with the most multiplications and additions (FMAs). It is followed once around from
its head to its back edge, along the path of lanes that are within bounds: each "then" side is taken by some
lane, and no lane takes an "else" side. Loops within it are walked through once.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

LABEL = re.compile(r"^\s*(BB\d+):")
LINE = re.compile(r"^\s+([a-z]\w+)\s*(.*?)\s*(;.*)?$")
FMA = re.compile(r"^v_(fma|fmac|fmamk|fmaak|mac|mad|madmk|madak)(_legacy)?_f32")
DUAL_FMA = re.compile(r"v_dual_(?:fmac|fmaak|fmamk)_f32")
LANES_EXCHANGED = ("ds_bpermute", "ds_permute", "ds_swizzle")
LOADS = ("buffer_load", "global_load", "flat_load", "tbuffer_load")
STORES = ("buffer_store", "global_store", "flat_store", "tbuffer_store")
FREE = ("s_nop", "s_clause", "s_delay_alu", "s_inst_prefetch", "s_sleep", "s_code_end")
WAIT = re.compile(r"vmcnt\((\d+)\)")
MOST_STEPS = 20_000  # of a walk: a kernel's code has less than that

Kind = Literal[
    "vector", "matrix", "lds read", "lds write", "lanes", "load", "store", "scratch", "scalar load", "wait",
    "barrier", "branch", "free", "scalar",
]  # fmt: skip


class Instruction(NamedTuple):
    """One line of assembly."""

    op: str
    arguments: str


class Work(NamedTuple):
    """What an instruction does: its kind, FMAs of a lane and bytes of a lane."""

    kind: Kind
    fmas: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class MainLoop:
    """Counts of one round of a kernel's main loop.

    ``fmas`` are multiplications and additions, ``vectors`` the vector instructions that are issued, these
    included; ``lds_bytes`` what a lane reads from shared memory. ``loads`` come from memory, ``narrow_loads``
    of them with less than 16 bytes; ``waited`` ones are waited for before the next FMA: nothing hides them.
    """

    fmas: int
    vectors: int
    lds_reads: int
    lds_bytes: int
    loads: int
    narrow_loads: int
    waited: int
    barriers: int

    @property
    def share(self) -> float:
        """The FMAs of all vector instructions: no more than this of a GPU's peak can be reached."""
        return self.fmas / self.vectors

    @property
    def lds_bound(self) -> float | None:
        """What shared memory allows of the peak: 128 bytes a clock beside 64 FMAs. None without any reads."""
        return 2 * self.fmas / self.lds_bytes if self.lds_bytes else None


def main_loop(text: str) -> MainLoop | None:
    """The counts of the main loop; None where no loop has an FMA."""
    code, labels = parse(text)
    works = [work_of(instruction) for instruction in code]
    fmas = {span: sum(work.fmas for work in works[span[0] : span[1] + 1]) for span in loops(code, labels)}
    if not any(fmas.values()):
        return None
    head, back = max(fmas, key=lambda span: fmas[span])
    path = walk(code, labels, head, back)
    return _count([code[i] for i in path], [works[i] for i in path])


def parse(text: str) -> tuple[list[Instruction], dict[str, int]]:
    """The instructions, and the index of the one after each label."""
    code: list[Instruction] = []
    labels: dict[str, int] = {}
    for line in text.splitlines():
        if label := LABEL.match(line):
            labels[label[1]] = len(code)
        elif not line.lstrip().startswith(";") and (found := LINE.match(line)):
            code.append(Instruction(found[1], found[2]))
    return code, labels


def work_of(instruction: Instruction) -> Work:
    """
    >>> work_of(Instruction("buffer_load_dwordx4", "v[0:3], v4, s[0:3], 0 offen"))
    Work(kind='load', fmas=0, bytes=16)
    """
    op, arguments = instruction
    if op.startswith("v_dual"):
        return Work("vector", len(DUAL_FMA.findall(f"{op} {arguments}")))
    if op.startswith("v_pk_fma_f32"):
        return Work("vector", 2)
    if op.startswith(("v_wmma", "v_swmmac", "v_mfma")):
        return Work("matrix")
    if op.startswith("v_"):
        return Work("vector", int(bool(FMA.match(op))))
    if op.startswith(LANES_EXCHANGED):
        return Work("lanes")
    if op.startswith("ds_"):
        pair = 2 if re.search(r"read2|write2|_2addr", op) else 1
        width = next((size for mark, size in (("128", 16), ("96", 12), ("64", 8)) if mark in op), 4)
        return Work("lds read" if re.search(r"read|load", op) else "lds write", 0, pair * width)
    if op.startswith(LOADS):
        found = re.search(r"x(\d)(?:_e\d+)?$|b(\d+)$", op)
        width = 4 if found is None else int(found[1]) * 4 if found[1] else int(found[2]) // 8
        return Work("load", 0, width)
    kinds: tuple[tuple[tuple[str, ...], Kind], ...] = (
        (STORES, "store"),
        (("scratch_",), "scratch"),
        (("s_load", "s_buffer_load"), "scalar load"),
        (("s_waitcnt", "s_wait_"), "wait"),
        (("s_barrier",), "barrier"),
        (("s_branch", "s_cbranch"), "branch"),
        (FREE, "free"),
    )
    return Work(next((kind for names, kind in kinds if op.startswith(names)), "scalar"))


def loops(code: Sequence[Instruction], labels: Mapping[str, int]) -> list[tuple[int, int]]:
    """The first and the last instruction of each loop, the outer ones first."""
    ends: dict[int, int] = {}
    for i, instruction in enumerate(code):
        target = _target(instruction, labels)
        if target is not None and target <= i:
            ends[target] = max(ends.get(target, 0), i)
    return sorted(ends.items())


def _target(instruction: Instruction, labels: Mapping[str, int]) -> int | None:
    """Where a branch goes to."""
    if work_of(instruction).kind != "branch":
        return None
    found = re.search(r"BB\d+", instruction.arguments)
    return labels.get(found[0]) if found else None


def walk(code: Sequence[Instruction], labels: Mapping[str, int], head: int, back: int) -> list[int]:
    """The indices of the instructions of one round."""
    path: list[int] = []
    i = head
    while i < len(code) and len(path) < MOST_STEPS:
        path.append(i)
        if i == back:
            break
        target = _target(code[i], labels)
        i += 1
        if target is None or target > back:
            continue
        if code[i - 1].op == "s_branch":
            if target == head:
                break
            if target >= i:
                i = target
        elif "execz" in code[i - 1].op and target >= i and not _skips_then(code, i - 1):
            i = target
    return path


def _skips_then(code: Sequence[Instruction], branch: int) -> bool:
    """Whether a branch that is taken when no lane is left skips a "then" side, not an "else" side."""
    for op, arguments in reversed(code[max(0, branch - 3) : branch]):
        writes_exec = arguments.split(",")[0].strip().startswith("exec")
        if writes_exec and op.startswith(("s_andn2", "s_and_not", "s_xor_b")):
            return False
        if op.startswith("v_cmpx") or "saveexec" in op:
            return True
        if writes_exec and op.startswith(("s_and_b", "s_mov_b")):
            return True
    return True


def _count(code: Sequence[Instruction], works: Sequence[Work]) -> MainLoop:
    def count(kind: Kind) -> int:
        return sum(work.kind == kind for work in works)

    return MainLoop(
        fmas=sum(work.fmas for work in works),
        vectors=count("vector"),
        lds_reads=count("lds read"),
        lds_bytes=sum(work.bytes for work in works if work.kind == "lds read"),
        loads=count("load"),
        narrow_loads=sum(work.kind == "load" and work.bytes < 16 for work in works),
        waited=_waited(code, works),
        barriers=count("barrier"),
    )


def _waited(code: Sequence[Instruction], works: Sequence[Work]) -> int:
    """How many loads of a round are waited for before any FMA that follows them, in this round or the next.

    Loads return in order: a wait for no more than n in flight is one for all but the last n.
    """
    flying: deque[tuple[int, int]] = deque()  # the round of each load, and the FMAs before it
    fmas = waited = 0
    for turn in range(2):
        for instruction, work in zip(code, works, strict=True):
            fmas += work.fmas
            if work.kind == "load":
                flying.append((turn, fmas))
            left = _left_in_flight(instruction)
            while left is not None and len(flying) > left:
                issued, before = flying.popleft()
                waited += issued == 0 and before == fmas
    return waited


def _left_in_flight(instruction: Instruction) -> int | None:
    """How many loads may still be under way after a wait; None for what waits for no load."""
    op, arguments = instruction
    if op.startswith("s_wait_loadcnt"):
        return int(arguments.split()[0], 0)
    found = WAIT.search(arguments) if op == "s_waitcnt" else None
    return int(found[1]) if found else None
