"""The thread pool as LLVM IR text, for one machine.

Out: `spread` (one group over the pool), `leave` (give back what it took), `worker` (the life of
one pool thread) and `retire` (end the workers). One job is in flight at a time, under the lock. Its
claim word holds the job's number and the items left, so taking items is one compare-and-swap,
which fails if the job is no longer the one whose description was read: nobody waits for a worker
that is late, and the calling thread does all the work itself if none comes.
"""

from __future__ import annotations

from svod.runtime.native.layout import Lane, State
from svod.runtime.native.machine import Machine, SystemCalls

# A thread that waits for the others gives its processor away after this many pauses (50-200 µs).
PAUSES_BEFORE_YIELD = 4096
# Each take is this part of what one lane's fair share of the rest would be: few takes when items
# are many, and the last takes are single items, so that all lanes end together.
TAKES_PER_SHARE = 4

WAIT, WAKE = "i64 128", "i64 129"  # the futex operations, on memory private to the process
EVERYONE = f"i64 {0x7FFFFFFF}"
MASK_SIZE = f"i64 {Lane.MASK_SIZE}"


def pool_ir(machine: Machine, calls: SystemCalls) -> str:
    return "\n".join((_work(), _spread(machine, calls), _placement(calls), _worker(machine, calls)))


def no_pool_ir() -> str:
    """The same names where there are no threads."""
    return """
define internal i64 @spread(
    ptr %state, ptr %first, i64 %total, ptr %records, ptr %stamps,
    ptr %stage, ptr %mask) {
  ret i64 0
}

define internal void @leave(ptr %state, i64 %stage, ptr %mask) {
  ret void
}

define void @retire(ptr %state) {
  ret void
}

define ptr @worker(ptr %block) {
  ret ptr null
}
"""


def field(name: str, base: str, offset: int) -> str:
    """`%name`, the address `offset` bytes after `%base`."""
    return f"%{name} = getelementptr inbounds i8, ptr %{base}, i64 {offset}"


def _system(result: str, number: int, *arguments: str) -> str:
    """`%result` of a system call."""
    return f"%{result} = call i64 (i64, ...) @syscall({', '.join((f'i64 {number}', *arguments))})"


def _take(left: str) -> str:
    """`%take`: how many of the items left one lane takes at once."""
    return f"""{field("threads.at", "state", State.THREADS)}
  %threads = load atomic i64, ptr %threads.at monotonic, align 8
  %parts = mul i64 %threads, {TAKES_PER_SHARE}
  %share = udiv i64 {left}, %parts
  %take = call i64 @llvm.umax.i64(i64 %share, i64 1)"""


def _work() -> str:
    """Take items of the current job and run them, until none is left to take."""
    return f"""
define internal void @work(ptr %state, i64 %lane) {{
entry:
  {field("claim.at", "state", State.CLAIM)}
  {field("pending.at", "state", State.PENDING)}
  {field("first.at", "state", State.JOB_FIRST)}
  {field("total.at", "state", State.JOB_TOTAL)}
  {field("records.at", "state", State.JOB_RECORDS)}
  {field("stamps.at", "state", State.JOB_STAMPS)}
  br label %look
look:
  %cursor = phi ptr [null, %entry], [%cursor, %try], [%new.cursor, %mine]
  %base = phi i64 [0, %entry], [%base, %try], [%new.base, %mine]
  %known = phi i64 [-1, %entry], [%known, %try], [%job, %mine]
  %claim = load atomic i64, ptr %claim.at acquire, align 8
  %left = and i64 %claim, 4294967295
  %none = icmp eq i64 %left, 0
  br i1 %none, label %done, label %try
try:
  %first = load atomic ptr, ptr %first.at monotonic, align 8
  %total = load atomic i64, ptr %total.at monotonic, align 8
  %records = load atomic ptr, ptr %records.at monotonic, align 8
  %stamps = load atomic ptr, ptr %stamps.at monotonic, align 8
  {_take("%left")}
  %rest = sub i64 %claim, %take
  %swap = cmpxchg weak ptr %claim.at, i64 %claim, i64 %rest acq_rel monotonic, align 8
  %won = extractvalue {{i64, i1}} %swap, 1
  br i1 %won, label %mine, label %look
mine:
  %job = lshr i64 %claim, 32
  %same = icmp eq i64 %job, %known
  %start.cursor = select i1 %same, ptr %cursor, ptr %first
  %start.base = select i1 %same, i64 %base, i64 0
  %begin = sub i64 %total, %left
  %end = add i64 %begin, %take
  %place = call {{ptr, i64}} @items(
    ptr %start.cursor, i64 %start.base, i64 %begin, i64 %end,
    ptr %records, ptr %stamps, i64 %lane)
  %new.cursor = extractvalue {{ptr, i64}} %place, 0
  %new.base = extractvalue {{ptr, i64}} %place, 1
  %before = atomicrmw sub ptr %pending.at, i64 %take release, align 8
  br label %look
done:
  ret void
}}
"""


def _spread(machine: Machine, calls: SystemCalls) -> str:
    """One group over the pool. Result: 0 = the pool is busy, 1 = done, 2 = no workers yet.

    The calling thread keeps the first items for itself, so that it need not take them.
    """
    return f"""
declare i64 @syscall(i64, ...)

define internal i64 @spread(
    ptr %state, ptr %first, i64 %total, ptr %records, ptr %stamps,
    ptr %stage, ptr %mask) {{
entry:
  {field("started.at", "state", State.STARTED)}
  %started = load atomic i64, ptr %started.at acquire, align 8
  %missing = icmp eq i64 %started, 0
  br i1 %missing, label %unstarted, label %lock
unstarted:
  ret i64 2
lock:
  {field("lock.at", "state", State.LOCK)}
  %attempt = cmpxchg ptr %lock.at, i64 0, i64 1 acquire monotonic, align 8
  %locked = extractvalue {{i64, i1}} %attempt, 1
  br i1 %locked, label %own, label %busy
busy:
  ret i64 0
own:
  %stage.now = load i64, ptr %stage, align 8
  %is.new = icmp eq i64 %stage.now, 0
  br i1 %is.new, label %enter, label %describe
enter:
  call void @enter(ptr %state, ptr %stage, ptr %mask)
  br label %describe
describe:
  {_take("%total")}
  %rest = sub i64 %total, %take
  {field("first.at", "state", State.JOB_FIRST)}
  {field("total.at", "state", State.JOB_TOTAL)}
  {field("records.at", "state", State.JOB_RECORDS)}
  {field("stamps.at", "state", State.JOB_STAMPS)}
  {field("pending.at", "state", State.PENDING)}
  {field("claim.at", "state", State.CLAIM)}
  {field("sleepers.at", "state", State.SLEEPERS)}
  store atomic ptr %first, ptr %first.at monotonic, align 8
  store atomic i64 %total, ptr %total.at monotonic, align 8
  store atomic ptr %records, ptr %records.at monotonic, align 8
  store atomic ptr %stamps, ptr %stamps.at monotonic, align 8
  store atomic i64 %rest, ptr %pending.at monotonic, align 8
  br label %publish
publish:
  %old = load atomic i64, ptr %claim.at monotonic, align 8
  %job = lshr i64 %old, 32
  %number = add i64 %job, 1
  %high = shl i64 %number, 32
  %new = or i64 %high, %rest
  %swap = cmpxchg ptr %claim.at, i64 %old, i64 %new seq_cst monotonic, align 8
  %won = extractvalue {{i64, i1}} %swap, 1
  br i1 %won, label %rouse, label %publish
rouse:
  %sleepers = load atomic i64, ptr %sleepers.at seq_cst, align 8
  %awake = icmp eq i64 %sleepers, 0
  br i1 %awake, label %work, label %wake
wake:
  {field("word", "claim.at", 4)}
  %wanted = call i64 @llvm.umin.i64(i64 %sleepers, i64 %rest)
  {_system("woken", calls.futex, "ptr %word", WAKE, "i64 %wanted")}
  br label %work
work:
  %place = call {{ptr, i64}} @items(
    ptr %first, i64 0, i64 0, i64 %take, ptr %records, ptr %stamps, i64 0)
  call void @work(ptr %state, i64 0)
  br label %wait
wait:
  %turn = phi i64 [0, %work], [%next.turn, %pause], [%turn, %yield]
  %pending = load atomic i64, ptr %pending.at acquire, align 8
  %finished = icmp eq i64 %pending, 0
  br i1 %finished, label %join, label %again
again:
  %patient = icmp ult i64 %turn, {PAUSES_BEFORE_YIELD}
  br i1 %patient, label %pause, label %yield
pause:
  {machine.pause}
  %next.turn = add i64 %turn, 1
  br label %wait
yield:
  {_system("yielded", calls.yield_processor)}
  br label %wait
join:
  store atomic i64 0, ptr %lock.at release, align 8
  ret i64 1
}}

define void @retire(ptr %state) {{
  {field("quit.at", "state", State.QUIT)}
  {field("claim.at", "state", State.CLAIM)}
  {field("word", "claim.at", 4)}
  store atomic i64 1, ptr %quit.at seq_cst, align 8
  %old = atomicrmw add ptr %claim.at, i64 4294967296 seq_cst, align 8
  {_system("woken", calls.futex, "ptr %word", WAKE, EVERYONE)}
  ret void
}}
"""


def _placement(calls: SystemCalls) -> str:
    """Binding the calling thread for the rest of a run, and giving its own mask back.

    Stages: 0 = the pool was not used, 1 = used, 2 = used and the caller is bound. Only one caller
    is bound at a time, and only to processors that its own mask allows.
    """
    return f"""
declare i64 @llvm.vector.reduce.or.v16i64(<16 x i64>)

define internal void @enter(ptr %state, ptr %stage, ptr %mask) {{
  {field("active.at", "state", State.ACTIVE)}
  {field("place.at", "state", State.PLACE)}
  {field("placed.at", "state", State.PLACED)}
  {field("allowed.at", "state", State.LANES + Lane.MASK)}
  %narrow = alloca <16 x i64>, align 128
  %runs = atomicrmw add ptr %active.at, i64 1 monotonic, align 8
  store i64 1, ptr %stage, align 8
  %place = load atomic i64, ptr %place.at monotonic, align 8
  %wanted = icmp ne i64 %place, 0
  br i1 %wanted, label %own, label %done
own:
  %attempt = cmpxchg ptr %placed.at, i64 0, i64 1 acquire monotonic, align 8
  %first = extractvalue {{i64, i1}} %attempt, 1
  br i1 %first, label %read, label %done
read:
  store <16 x i64> zeroinitializer, ptr %mask, align 8
  {_system("size", calls.get_affinity, "i64 0", MASK_SIZE, "ptr %mask")}
  %is.read = icmp sgt i64 %size, 0
  br i1 %is.read, label %compare, label %release
compare:
  %own.mask = load <16 x i64>, ptr %mask, align 8
  %allowed = load <16 x i64>, ptr %allowed.at, align 8
  %common = and <16 x i64> %own.mask, %allowed
  %outside = xor <16 x i64> %common, %own.mask
  %any.common = call i64 @llvm.vector.reduce.or.v16i64(<16 x i64> %common)
  %any.outside = call i64 @llvm.vector.reduce.or.v16i64(<16 x i64> %outside)
  %possible = icmp ne i64 %any.common, 0
  %useful = icmp ne i64 %any.outside, 0
  %go = and i1 %possible, %useful
  br i1 %go, label %bind, label %release
bind:
  store <16 x i64> %common, ptr %narrow, align 128
  {_system("result", calls.set_affinity, "i64 0", MASK_SIZE, "ptr %narrow")}
  %bound = icmp eq i64 %result, 0
  br i1 %bound, label %keep, label %release
keep:
  store i64 2, ptr %stage, align 8
  ret void
release:
  store atomic i64 0, ptr %placed.at release, align 8
  ret void
done:
  ret void
}}

define internal void @leave(ptr %state, i64 %stage, ptr %mask) {{
  {field("active.at", "state", State.ACTIVE)}
  {field("placed.at", "state", State.PLACED)}
  %runs = atomicrmw sub ptr %active.at, i64 1 monotonic, align 8
  %bound = icmp eq i64 %stage, 2
  br i1 %bound, label %restore, label %done
restore:
  {_system("result", calls.set_affinity, "i64 0", MASK_SIZE, "ptr %mask")}
  store atomic i64 0, ptr %placed.at release, align 8
  br label %done
done:
  ret void
}}
"""


def _worker(machine: Machine, calls: SystemCalls) -> str:
    """The life of one pool thread: work, spin for a while, sleep.

    A worker announces that it will sleep before it looks for work the last time, and the caller
    publishes a job before it looks for sleepers, so one of the two always sees the other.
    """
    return f"""
define ptr @worker(ptr %block) {{
entry:
  %state = load ptr, ptr %block, align 8
  {field("lane.at", "block", Lane.NUMBER)}
  {field("mask.at", "block", Lane.MASK)}
  {field("claim.at", "state", State.CLAIM)}
  {field("word", "claim.at", 4)}
  {field("quit.at", "state", State.QUIT)}
  {field("place.at", "state", State.PLACE)}
  {field("idle.at", "state", State.IDLE_SPIN)}
  {field("busy.at", "state", State.RUN_SPIN)}
  {field("active.at", "state", State.ACTIVE)}
  {field("sleepers.at", "state", State.SLEEPERS)}
  {field("alive.at", "state", State.ALIVE)}
  %lane = load i64, ptr %lane.at, align 8
  call void @write_float_mode(i64 {machine.float_mode})
  %place = load atomic i64, ptr %place.at monotonic, align 8
  %free = icmp eq i64 %place, 0
  br i1 %free, label %work, label %bind
bind:
  {_system("bound", calls.set_affinity, "i64 0", MASK_SIZE, "ptr %mask.at")}
  br label %work
work:
  call void @work(ptr %state, i64 %lane)
  %start = {machine.ticks}
  br label %spin
spin:
  %turn = phi i64 [0, %work], [%next.turn, %pause], [0, %clock]
  %claim = load atomic i64, ptr %claim.at acquire, align 8
  %left = and i64 %claim, 4294967295
  %none = icmp eq i64 %left, 0
  br i1 %none, label %idle, label %work
idle:
  %quit = load atomic i64, ptr %quit.at acquire, align 8
  %stay = icmp eq i64 %quit, 0
  br i1 %stay, label %pause, label %end
pause:
  {machine.pause}
  %next.turn = add i64 %turn, 1
  %soon = icmp ult i64 %next.turn, 32
  br i1 %soon, label %spin, label %clock
clock:
  %now = {machine.ticks}
  %passed = sub i64 %now, %start
  %idle.spin = load atomic i64, ptr %idle.at monotonic, align 8
  %busy.spin = load atomic i64, ptr %busy.at monotonic, align 8
  %active = load atomic i64, ptr %active.at monotonic, align 8
  %quiet = icmp eq i64 %active, 0
  %budget = select i1 %quiet, i64 %idle.spin, i64 %busy.spin
  %early = icmp ult i64 %passed, %budget
  br i1 %early, label %spin, label %announce
announce:
  %seen = load atomic i64, ptr %claim.at seq_cst, align 8
  %job = lshr i64 %seen, 32
  %others = atomicrmw add ptr %sleepers.at, i64 1 seq_cst, align 8
  %last.claim = load atomic i64, ptr %claim.at seq_cst, align 8
  %last.left = and i64 %last.claim, 4294967295
  %last.quit = load atomic i64, ptr %quit.at seq_cst, align 8
  %reasons = or i64 %last.left, %last.quit
  %sleepy = icmp eq i64 %reasons, 0
  br i1 %sleepy, label %sleep, label %rise
sleep:
  {_system("slept", calls.futex, "ptr %word", WAIT, "i64 %job", "ptr null")}
  br label %rise
rise:
  %were = atomicrmw sub ptr %sleepers.at, i64 1 seq_cst, align 8
  br label %work
end:
  %living = atomicrmw sub ptr %alive.at, i64 1 release, align 8
  ret ptr null
}}
"""
