"""The launcher as LLVM IR text, for one machine.

Out: a module with `run` (walk the records), `ticks`, and from the pool `worker` and `retire`.
Records that stand alone in their group and have one core are called right in the loop, at a few
nanoseconds each. The text is written as the code generator likes it, because no other LLVM passes
run over it: rotated loops, values instead of memory.
"""

from __future__ import annotations

from svod.runtime.native.layout import Flag, Record, Stamp, State
from svod.runtime.native.machine import Machine
from svod.runtime.native.pool_ir import field, no_pool_ir, pool_ir

# The clock is read after every group, but after runs of short single records only every so often.
LONGEST_UNTIMED = 16
SHORT_TICKS = 50_000


def launcher_ir(machine: Machine) -> str:
    """The whole module."""
    pool = pool_ir(machine, machine.calls) if machine.calls else no_pool_ir()
    parts = (_prelude(machine), _execute(), _items(), pool, _group(), _run(machine))
    return "\n".join(part.strip("\n") + "\n" for part in parts)


def _prelude(machine: Machine) -> str:
    return f"""
{machine.declarations}
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare i64 @llvm.umin.i64(i64, i64)
declare i64 @llvm.umax.i64(i64, i64)

define i64 @ticks() {{
  %now = {machine.ticks}
  ret i64 %now
}}

define internal i64 @read_float_mode() {{
{machine.read_float_mode}
}}

define internal void @write_float_mode(i64 %mode) {{
{machine.write_float_mode}
}}
"""


def _execute() -> str:
    """One item of one record: a core of a kernel, a part of a copy, or nothing."""
    return f"""
define internal void @execute(ptr %record, i64 %core) {{
  {field("buffers.at", "record", Record.BUFFERS)}
  {field("values.at", "record", Record.VALUES)}
  {field("kind.at", "record", Record.KIND)}
  %buffers = load ptr, ptr %buffers.at, align 8
  %values = load ptr, ptr %values.at, align 8
  %kind = load i64, ptr %kind.at, align 8
  %is.kernel = icmp eq i64 %kind, 0
  br i1 %is.kernel, label %kernel, label %other
kernel:
  %function = load ptr, ptr %record, align 8
  call void %function(ptr %buffers, ptr %values, i64 %core)
  ret void
other:
  %is.copy = icmp eq i64 %kind, 1
  br i1 %is.copy, label %copy, label %done
copy:
  {field("cores.at", "record", Record.CORES)}
  %cores = load i64, ptr %cores.at, align 8
  %size = load i64, ptr %values, align 8
  %even = udiv i64 %size, %cores
  %more = add i64 %even, 64
  %part = and i64 %more, -64
  %begin = mul i64 %core, %part
  %some = icmp ult i64 %begin, %size
  br i1 %some, label %move, label %done
move:
  %rest = sub i64 %size, %begin
  %length = call i64 @llvm.umin.i64(i64 %rest, i64 %part)
  %source.at = getelementptr inbounds i8, ptr %buffers, i64 8
  %target = load ptr, ptr %buffers, align 8
  %source = load ptr, ptr %source.at, align 8
  %to = getelementptr inbounds i8, ptr %target, i64 %begin
  %from = getelementptr inbounds i8, ptr %source, i64 %begin
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %from, i64 %length, i1 false)
  br label %done
done:
  ret void
}}

define internal void @execute_stamped(
    ptr %record, i64 %core, ptr %records, ptr %stamps, i64 %lane) {{
  %plain = icmp eq ptr %stamps, null
  br i1 %plain, label %unstamped, label %check
check:
  %lanes = load i64, ptr %stamps, align 8
  %fits = icmp ult i64 %lane, %lanes
  br i1 %fits, label %stamp, label %unstamped
unstamped:
  call void @execute(ptr %record, i64 %core)
  ret void
stamp:
  %here = ptrtoint ptr %record to i64
  %first = ptrtoint ptr %records to i64
  %distance = sub i64 %here, %first
  %index = udiv i64 %distance, {Record.SIZE}
  %row = mul i64 %index, %lanes
  %number = add i64 %row, %lane
  %offset = mul i64 %number, {Stamp.SLOT_SIZE}
  {field("slots", "stamps", Stamp.SLOTS)}
  %start.at = getelementptr inbounds i8, ptr %slots, i64 %offset
  %end.at = getelementptr inbounds i8, ptr %start.at, i64 8
  %old = load i64, ptr %start.at, align 8
  %before = call i64 @ticks()
  call void @execute(ptr %record, i64 %core)
  %after = call i64 @ticks()
  %fresh = icmp eq i64 %old, 0
  %start = select i1 %fresh, i64 %before, i64 %old
  store i64 %start, ptr %start.at, align 8
  store i64 %after, ptr %end.at, align 8
  ret void
}}
"""


def _items() -> str:
    """Items [first, last) of a group: the cursor is a record and the number of its first item."""
    return f"""
define internal {{ptr, i64}} @items(
    ptr %cursor, i64 %base, i64 %first, i64 %last, ptr %records, ptr %stamps, i64 %lane) {{
entry:
  br label %seek
seek:
  %item = phi i64 [%first, %entry], [%item, %pass], [%next, %work]
  %at = phi ptr [%cursor, %entry], [%following, %pass], [%at, %work]
  %from = phi i64 [%base, %entry], [%end, %pass], [%from, %work]
  {field("cores.at", "at", Record.CORES)}
  %cores = load i64, ptr %cores.at, align 8
  %end = add i64 %from, %cores
  %beyond = icmp uge i64 %item, %end
  br i1 %beyond, label %pass, label %work
pass:
  {field("following", "at", Record.SIZE)}
  br label %seek
work:
  %core = sub i64 %item, %from
  call void @execute_stamped(ptr %at, i64 %core, ptr %records, ptr %stamps, i64 %lane)
  %next = add i64 %item, 1
  %more = icmp ult i64 %next, %last
  br i1 %more, label %seek, label %done
done:
  %half = insertvalue {{ptr, i64}} poison, ptr %at, 0
  %whole = insertvalue {{ptr, i64}} %half, i64 %from, 1
  ret {{ptr, i64}} %whole
}}
"""


def _group() -> str:
    """One group from record `index` on: gives the record after it, or `~index`: no workers yet."""
    return f"""
define internal i64 @group(
    ptr %state, ptr %records, i64 %index, i64 %count, ptr %stamps,
    ptr %stage, ptr %mask) {{
entry:
  %first.offset = mul i64 %index, {Record.SIZE}
  %first = getelementptr inbounds i8, ptr %records, i64 %first.offset
  {field("group.at", "first", Record.GROUP)}
  %group = load i64, ptr %group.at, align 8
  br label %scan
scan:
  %at = phi i64 [%index, %entry], [%next, %member]
  %total = phi i64 [0, %entry], [%sum, %member]
  %all.flags = phi i64 [-1, %entry], [%both.flags, %member]
  %inside = icmp ult i64 %at, %count
  br i1 %inside, label %look, label %scanned
look:
  %offset = mul i64 %at, {Record.SIZE}
  %record = getelementptr inbounds i8, ptr %records, i64 %offset
  {field("other.at", "record", Record.GROUP)}
  {field("kind.at", "record", Record.KIND)}
  %other = load i64, ptr %other.at, align 8
  %kind = load i64, ptr %kind.at, align 8
  %same = icmp eq i64 %other, %group
  %native = icmp ult i64 %kind, 3
  %belongs = and i1 %same, %native
  br i1 %belongs, label %member, label %scanned
member:
  {field("cores.at", "record", Record.CORES)}
  {field("flags.at", "record", Record.FLAGS)}
  %cores = load i64, ptr %cores.at, align 8
  %flags = load i64, ptr %flags.at, align 8
  %sum = add i64 %total, %cores
  %both.flags = and i64 %all.flags, %flags
  %next = add i64 %at, 1
  br label %scan
scanned:
  %threads = load atomic i64, ptr %state monotonic, align 8
  %several = icmp ugt i64 %total, 1
  %peopled = icmp ugt i64 %threads, 1
  %small.bit = and i64 %all.flags, {Flag.SMALL}
  %large = icmp eq i64 %small.bit, 0
  %able = and i1 %several, %peopled
  %wide = and i1 %able, %large
  br i1 %wide, label %parallel, label %inline
parallel:
  %outcome = call i64 @spread(
    ptr %state, ptr %first, i64 %total, ptr %records, ptr %stamps,
    ptr %stage, ptr %mask)
  %done = icmp eq i64 %outcome, 1
  br i1 %done, label %finish, label %refused
refused:
  %unstarted = icmp eq i64 %outcome, 2
  br i1 %unstarted, label %start, label %inline
start:
  %complement = xor i64 %index, -1
  ret i64 %complement
inline:
  %empty = icmp eq i64 %total, 0
  br i1 %empty, label %finish, label %alone
alone:
  %place = call {{ptr, i64}} @items(
    ptr %first, i64 0, i64 0, i64 %total, ptr %records, ptr %stamps, i64 0)
  br label %finish
finish:
  ret i64 %at
}}
"""


def _run(machine: Machine) -> str:
    """Walk the records from `start`: gives where it stopped, or `~record`: no workers yet."""
    return f"""
define i64 @run(ptr %state, ptr %records, i64 %start, i64 %count, ptr %stamps) {{
entry:
  %mask = alloca [16 x i64], align 64
  %stage = alloca i64, align 8
  store i64 0, ptr %stage, align 8
  {field("interrupt.at", "state", State.INTERRUPT)}
  {field("slice.at", "state", State.SLICE)}
  %slice = load i64, ptr %slice.at, align 8
  %untimed = icmp eq ptr %stamps, null
  %float.mode = call i64 @read_float_mode()
  %float.bits = and i64 %float.mode, {machine.float_mode_mask}
  %float.usual = icmp eq i64 %float.bits, {machine.float_mode}
  br i1 %float.usual, label %begin, label %set.mode
set.mode:
  call void @write_float_mode(i64 {machine.float_mode})
  br label %begin
begin:
  %begun = {machine.ticks}
  br label %head
head:
  %index = phi i64 [%start, %begin], [%next, %quick], [%after, %timed]
  %budget = phi i64 [1, %begin], [%fewer, %quick], [%new.reload, %timed]
  %reload = phi i64 [1, %begin], [%reload, %quick], [%new.reload, %timed]
  %checked = phi i64 [%begun, %begin], [%checked, %quick], [%now, %timed]
  %more = icmp ult i64 %index, %count
  br i1 %more, label %test, label %finish
test:
  %interrupt = load atomic i64, ptr %interrupt.at monotonic, align 8
  %free = icmp eq i64 %interrupt, 0
  br i1 %free, label %open, label %finish
open:
  %offset = mul i64 %index, {Record.SIZE}
  %record = getelementptr inbounds i8, ptr %records, i64 %offset
  %next = add i64 %index, 1
  %followed = icmp ult i64 %next, %count
  {field("following", "record", Record.SIZE)}
  %peek = select i1 %followed, ptr %following, ptr %record
  {field("cores.at", "record", Record.CORES)}
  {field("kind.at", "record", Record.KIND)}
  {field("group.at", "record", Record.GROUP)}
  {field("next.group.at", "peek", Record.GROUP)}
  %cores = load i64, ptr %cores.at, align 8
  %kind = load i64, ptr %kind.at, align 8
  %group = load i64, ptr %group.at, align 8
  %next.group = load i64, ptr %next.group.at, align 8
  %other.group = icmp ne i64 %group, %next.group
  %last = xor i1 %followed, true
  %lone = or i1 %other.group, %last
  %is.kernel = icmp eq i64 %kind, 0
  %is.single = icmp eq i64 %cores, 1
  %plain = and i1 %is.kernel, %is.single
  %simple = and i1 %plain, %untimed
  %fast = and i1 %simple, %lone
  br i1 %fast, label %call, label %slow
call:
  {field("buffers.at", "record", Record.BUFFERS)}
  {field("values.at", "record", Record.VALUES)}
  %function = load ptr, ptr %record, align 8
  %buffers = load ptr, ptr %buffers.at, align 8
  %values = load ptr, ptr %values.at, align 8
  call void %function(ptr %buffers, ptr %values, i64 0)
  br label %quick
quick:
  %fewer = sub i64 %budget, 1
  %spent = icmp eq i64 %fewer, 0
  br i1 %spent, label %clock, label %head
slow:
  %is.python = icmp eq i64 %kind, 3
  br i1 %is.python, label %finish, label %other
other:
  %is.test = icmp eq i64 %kind, 4
  br i1 %is.test, label %examine, label %whole
examine:
  {field("examined.at", "record", Record.BUFFERS)}
  %examined = load ptr, ptr %examined.at, align 8
  %word.at = load ptr, ptr %examined, align 8
  %word = load i64, ptr %word.at, align 8
  %fine = icmp eq i64 %word, 0
  br i1 %fine, label %quick, label %finish
whole:
  %result = call i64 @group(
    ptr %state, ptr %records, i64 %index, i64 %count, ptr %stamps,
    ptr %stage, ptr %mask)
  %unstarted = icmp slt i64 %result, 0
  br i1 %unstarted, label %finish, label %clock
clock:
  %after = phi i64 [%next, %quick], [%result, %whole]
  %now = {machine.ticks}
  %ran = sub i64 %now, %begun
  %overdue = icmp ugt i64 %ran, %slice
  br i1 %overdue, label %finish, label %timed
timed:
  %step = sub i64 %now, %checked
  %short = icmp ult i64 %step, {SHORT_TICKS}
  %twice = shl i64 %reload, 1
  %longer = call i64 @llvm.umin.i64(i64 %twice, i64 {LONGEST_UNTIMED})
  %new.reload = select i1 %short, i64 %longer, i64 1
  br label %head
finish:
  %stopped = phi i64 [%index, %head], [%index, %test], [%index, %slow],
    [%index, %examine], [%result, %whole], [%after, %clock]
  %final = load i64, ptr %stage, align 8
  %used = icmp ne i64 %final, 0
  br i1 %used, label %leave, label %restore
leave:
  call void @leave(ptr %state, i64 %final, ptr %mask)
  br label %restore
restore:
  br i1 %float.usual, label %return, label %unset.mode
unset.mode:
  call void @write_float_mode(i64 %float.mode)
  br label %return
return:
  ret i64 %stopped
}}
"""
