"""LLVM IR of values: arithmetic, casts, vectors taken apart and joined.

Only operations and intrinsics listed here are ever written: LLVM ends the process on what a target
cannot select.
"""

from __future__ import annotations

from svod.base.errors import CompileError
from svod.codegen.render.dot import dot_form
from svod.codegen.render.llvm_types import constant, suffix, type_name, zero
from svod.dtype import types as dt
from svod.dtype.types import DType
from svod.ir import ops as O
from svod.ir.node import UOp

_INT_OPS = {O.ADD: "add", O.SUB: "sub", O.MUL: "mul", O.AND: "and", O.OR: "or", O.XOR: "xor"}
_FLOAT_OPS = {O.ADD: "fadd", O.SUB: "fsub", O.MUL: "fmul", O.DIV: "fdiv"}
_FLOAT_CALLS = {
    O.SQRT: "sqrt", O.ABS: "fabs", O.TRUNC: "trunc", O.FLOOR: "floor", O.CEIL: "ceil",
    O.ROUND: "roundeven",
}  # fmt: skip
_ORDERED = {O.LT: "olt", O.LE: "ole", O.EQ: "oeq", O.NE: "une"}
_SIGNED = {O.LT: "slt", O.LE: "sle", O.EQ: "eq", O.NE: "ne"}
_UNSIGNED = {O.LT: "ult", O.LE: "ule", O.EQ: "eq", O.NE: "ne"}

# 3 << 2 leaves signs out and makes NaN of what is negative.
FLOAT_PARTS = {
    O.LDEXP: ("scalef", ""), O.EXPONENT: ("getexp", ""), O.SIGNIFICAND: ("getmant", "12")
}  # fmt: skip


class LLVMValues:
    """Lines of a function, and what writes values into them."""

    has_fma = True  # of the processor
    is_arm = False

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.names: dict[UOp, str] = {}
        self.declarations: set[str] = set()  # of the intrinsics that were used
        self.count = 0

    def _node(self, node: UOp) -> None:
        """Write what computes a node and name it."""
        raise NotImplementedError

    def _fresh(self) -> str:
        self.count += 1
        return f"%v{self.count}"

    def _emit(self, text: str) -> str:
        name = self._fresh()
        self.lines.append(f"  {name} = {text}")
        return name

    def _value(self, node: UOp) -> str:
        if node.op == O.CONST:
            return constant(node.arg, node.dtype)
        name = self.names.get(node)
        if name is None:
            self._node(node)
            name = self.names[node]
        return name

    def _call(self, name: str, result: str, arguments: list[tuple[str, str]]) -> str:
        kinds = ", ".join([k.partition(" align ")[0] for k, _ in arguments])
        self.declarations.add(f"declare {result} @{name}({kinds})")
        text = ", ".join([f"{k} {v}" for k, v in arguments])
        return f"call {result} @{name}({text})"

    def _vectorize(self, node: UOp) -> str:
        kind = type_name(node.dtype)
        value = "poison"
        for i, s in enumerate(node.src):
            value = self._emit(
                f"insertelement {kind} {value}, {type_name(s.dtype)} {self._value(s)}, i64 {i}"
            )
        return value

    def _shuffled(self, node: UOp) -> str:
        kind = type_name(node.src[0].dtype)
        values = [self._value(s) for s in node.src]
        second = values[1] if len(values) == 2 else "poison"
        mask = ", ".join([f"i32 {lane}" if lane >= 0 else "i32 poison" for lane in node.arg])
        return self._emit(
            f"shufflevector {kind} {values[0]}, {kind} {second}, <{len(node.arg)} x i32> <{mask}>"
        )

    def _broadcast(self, value: str, dtype: DType) -> str:
        kind, scalar = type_name(dtype), type_name(dtype.scalar)
        one = self._emit(f"insertelement {kind} poison, {scalar} {value}, i64 0")
        return self._emit(
            f"shufflevector {kind} {one}, {kind} poison, <{dtype.lanes} x i32> zeroinitializer"
        )

    def _cast(self, node: UOp) -> str:
        source = node.src[0]
        a, b = source.dtype, node.dtype
        value, old, new = self._value(source), type_name(source.dtype), type_name(node.dtype)
        if a.kind == "f" and b.kind == "f":
            word = "fpext" if b.bits > a.bits else "fptrunc"
            return self._emit(f"{word} {old} {value} to {new}")
        if a.kind == "f":
            name = "fptosi" if b.kind in "ix" else "fptoui"
            return self._emit(
                self._call(f"llvm.{name}.sat.{suffix(b)}.{suffix(a)}", new, [(old, value)])
            )
        if b.kind == "f":
            word = "sitofp" if a.kind == "i" else "uitofp"
            return self._emit(f"{word} {old} {value} to {new}")
        bits_a = 1 if a.kind == "b" else a.bits
        bits_b = 1 if b.kind == "b" else b.bits
        if bits_a == bits_b:
            return value
        if bits_b < bits_a:
            return self._emit(f"trunc {old} {value} to {new}")
        word = "sext" if a.kind == "i" else "zext"
        return self._emit(f"{word} {old} {value} to {new}")

    def _bitcast(self, node: UOp) -> str:
        old, new = type_name(node.src[0].dtype), type_name(node.dtype)
        value = self._value(node.src[0])
        return value if old == new else self._emit(f"bitcast {old} {value} to {new}")

    def _dot(self, node: UOp) -> str:
        """The sum of products of words, on vectors of a size that an instruction takes."""
        form = dot_form(node, self.is_arm)
        a, b = [self._emit(f"bitcast {type_name(s.dtype)} {self._value(s)} to {form.words}")
                for s in node.src[:2]]  # fmt: skip
        if form.swaps:
            a, b = b, a
        kind = type_name(node.dtype)
        total = self._value(node.src[2]) if len(node.src) == 3 else "zeroinitializer"
        return self._emit(
            self._call(form.name, kind, [(kind, total), (form.words, a), (form.words, b)])
        )

    def _float_parts(self, node: UOp) -> str:
        """AVX-512's instruction for one register: in all lanes, rounding as always."""
        kind = type_name(node.dtype)
        register = node.dtype.lanes * node.dtype.bits
        word, option = FLOAT_PARTS[node.op]
        arguments = [(kind, self._value(s)) for s in node.src]
        arguments += [("i32", option)] if option else []
        arguments += [(kind, "zeroinitializer"), (f"i{max(node.dtype.lanes, 8)}", "-1")]
        arguments += [("i32", "4")] if register == 512 else []
        name = f"llvm.x86.avx512.mask.{word}.{'ps' if node.dtype.bits == 32 else 'pd'}.{register}"
        return self._emit(self._call(name, kind, arguments))

    def _alu(self, node: UOp) -> str:
        op, dtype = node.op, node.dtype
        kind = type_name(dtype)
        values = [self._value(s) for s in node.src]
        operand = node.src[-1].dtype
        is_float = operand.kind == "f"
        if op in O.COMPARE:
            word = "fcmp" if is_float else "icmp"
            signed = operand.kind == "i"
            table = _ORDERED if is_float else (_SIGNED if signed else _UNSIGNED)
            return self._emit(f"{word} {table[op]} {type_name(operand)} {values[0]}, {values[1]}")
        if op == O.WHERE:
            test = type_name(node.src[0].dtype)
            return self._emit(f"select {test} {values[0]}, {kind} {values[1]}, {kind} {values[2]}")
        if op == O.FMA:
            if not self.has_fma and dtype.scalar is dt.float32:
                return self._fma_in_doubles(dtype, values)
            name = f"llvm.fma.{suffix(dtype)}"
            return self._emit(self._call(name, kind, [(kind, v) for v in values]))
        if op == O.NEG:
            if is_float:
                return self._emit(f"fneg {kind} {values[0]}")
            return self._emit(f"sub {kind} {zero(kind)}, {values[0]}")
        if op == O.NOT:
            ones = constant(True, dtype) if dtype.kind == "b" else constant(-1, dtype)
            return self._emit(f"xor {kind} {values[0]}, {ones}")
        if op in (O.MAX, O.MIN):
            return self._extreme(op, dtype, values)
        if is_float:
            if op in _FLOAT_OPS:
                return self._emit(f"{_FLOAT_OPS[op]} {kind} {values[0]}, {values[1]}")
            if op in _FLOAT_CALLS:
                name = f"llvm.{_FLOAT_CALLS[op]}.{suffix(dtype)}"
                return self._emit(self._call(name, kind, [(kind, values[0])]))
        else:
            if op in _INT_OPS:
                return self._emit(f"{_INT_OPS[op]} {kind} {values[0]}, {values[1]}")
            if op == O.ABS:
                negative = self._emit(f"sub {kind} {zero(kind)}, {values[0]}")
                test = self._emit(f"icmp slt {kind} {values[0]}, {zero(kind)}")
                bools = type_name(dt.bool_.vec(dtype.lanes))
                return self._emit(f"select {bools} {test}, {kind} {negative}, {kind} {values[0]}")
            if op == O.SHL:
                return self._emit(f"shl {kind} {values[0]}, {values[1]}")
            if op == O.SHR:
                word = "ashr" if dtype.kind == "i" else "lshr"
                return self._emit(f"{word} {kind} {values[0]}, {values[1]}")
            if op in (O.IDIV, O.MOD) and node.arg in ("trunc", "nonneg"):
                unsigned = node.arg == "nonneg" or dtype.kind != "i"
                word = ("u" if unsigned else "s") + ("div" if op == O.IDIV else "rem")
                return self._emit(f"{word} {kind} {values[0]}, {values[1]}")
        raise CompileError(f"no LLVM form for {O.NAMES[op]} on {dtype!r} with arg {node.arg!r}")

    def _fma_in_doubles(self, dtype: DType, values: list[str]) -> str:
        """Products of float32 are exact in float64, so the sum is off by a billionth of a rounding;
        the alternative is a call per lane."""
        kind, wide = type_name(dtype), type_name(dt.float64.vec(dtype.lanes))
        a, b, c = [self._emit(f"fpext {kind} {value} to {wide}") for value in values]
        product = self._emit(f"fmul {wide} {a}, {b}")
        total = self._emit(f"fadd {wide} {product}, {c}")
        return self._emit(f"fptrunc {wide} {total} to {kind}")

    def _extreme(self, op: int, dtype: DType, values: list[str]) -> str:
        kind = type_name(dtype)
        bools = type_name(dt.bool_.vec(dtype.lanes))
        a, b = values
        if dtype.kind == "b":
            return self._emit(f"{'or' if op == O.MAX else 'and'} {kind} {a}, {b}")
        if dtype.kind != "f":
            signed = dtype.kind == "i"
            test = ("s" if signed else "u") + ("gt" if op == O.MAX else "lt")
            chosen = self._emit(f"icmp {test} {kind} {a}, {b}")
            return self._emit(f"select {bools} {chosen}, {kind} {a}, {kind} {b}")
        # One hardware max, then NaN of the first operand (the second already passes through).
        test = "ogt" if op == O.MAX else "olt"
        chosen = self._emit(f"fcmp {test} {kind} {a}, {b}")
        larger = self._emit(f"select {bools} {chosen}, {kind} {a}, {kind} {b}")
        bad = self._emit(f"fcmp uno {kind} {a}, {a}")
        return self._emit(f"select {bools} {bad}, {kind} {a}, {kind} {larger}")
