"""Python code run on unknown integers: every path through it, and a z3 proof at the end of each.

``Word`` is an integer that z3 knows by name. A comparison of Words is a z3 formula; where Python
asks whether it is true, the run goes on with one answer and `every_path` comes back for the other.
So a function runs once for every way through it, and what held on the way is known at its end.

Integers are unbounded (``z3.Int``): what is proven holds for words of any width. A floor division
is a quotient and a remainder that fit the definition; a greatest common divisor is any common
divisor, which is all that a rewrite may rely on.
"""

from __future__ import annotations

from collections.abc import Callable
from math import gcd
from typing import Any

import z3

FEASIBLE_MS = 100  # to find that a way is impossible; if that takes longer it is simply taken
PROOF_MS = 3_000
TACTICS = (("simplify", "solve-eqs", "smt"), ("simplify", "qfnia"))


class NotProven(AssertionError):
    """z3 could not tell whether a claim holds."""


class Refuted(NotProven):
    """The claim is wrong for some input, which the message names."""


class Path:
    """One way through the code: answers so far, what they mean, and what divisions are called."""

    def __init__(self, answers: list[bool]) -> None:
        self.answers = answers
        self.asked = 0
        self.known: list[Any] = []
        self.open: list[list[bool]] = []  # ways that branch off from this one
        self.divisions: dict[tuple[int, int], tuple[Any, Any]] = {}
        self.kept: list[Any] = []  # keeps expressions alive, whose ids are keys
        self.quotients: dict[tuple[int, int], Any] = {}  # of multiples of a common divisor
        self.kept_exact: list[Any] = []
        self.divisors: dict[int, frozenset[int]] = {}  # of which numbers each is the divisor
        self.coprime: set[frozenset[int]] = set()  # what is left of them, divided by it
        self.positive: dict[int, Any] = {}  # divisors that are known to be
        self.count = 0
        self.solver = z3.Solver()
        self.solver.set("timeout", FEASIBLE_MS)

    def assume(self, *conditions: Any) -> None:
        self.known.extend(conditions)
        self.solver.add(*conditions)

    def fresh(self, name: str) -> Any:
        self.count += 1
        return z3.Int(f"{name}{self.count}")

    def decide(self, condition: Any) -> bool:
        condition = z3.simplify(condition)
        if z3.is_true(condition) or z3.is_false(condition):
            return bool(z3.is_true(condition))
        for known in self.known:
            if known.eq(condition):
                return True
            if z3.is_not(known) and known.arg(0).eq(condition):
                return False
        if self.asked < len(self.answers):
            answer = self.answers[self.asked]
        else:
            answer = self.solver.check(condition) != z3.unsat
            if answer and self.solver.check(z3.Not(condition)) != z3.unsat:
                self.open.append([*self.answers, False])
            self.answers = [*self.answers, answer]
        self.asked += 1
        self.assume(condition if answer else z3.Not(condition))
        return answer

    def divide(self, a: Any, c: Any) -> tuple[Any, Any]:
        """Quotient and remainder, rounded down, of a division by something positive."""
        a, c = z3.simplify(a), z3.simplify(c)
        key = (a.get_id(), c.get_id())
        if key not in self.divisions:
            if c.get_id() not in self.positive:
                self.prove(c > 0, "a divisor is positive")
                self.positive[c.get_id()] = c
            if any(a.get_id() in group for group in self.coprime):
                self.solver.set("timeout", PROOF_MS)
                is_small = self.solver.check(z3.Not(z3.And(a >= 0, a < c))) == z3.unsat
                self.solver.set("timeout", FEASIBLE_MS)
                if is_small:
                    return z3.IntVal(0), a
            q, r = self.fresh("q"), self.fresh("r")
            self.assume(a == q * c + r, r >= 0, r < c)
            self.divisions[key] = q, r
            self.kept += [a, c]
        return self.divisions[key]

    def is_multiple(self, n: Any, of: Any, quotient: Any) -> None:
        """n is of * quotient; so what is a multiple of n is one of ``of`` too."""
        n = z3.simplify(expression(n), som=True)
        self.kept_exact += [n, of]
        for (other, divisor), times in list(self.quotients.items()):
            if divisor == n.get_id():
                product = z3.simplify(times * quotient, som=True)
                self.kept_exact.append(product)
                self.quotients[other, of.get_id()] = product
        for sign in (1, -1):
            signed = z3.simplify(sign * n, som=True)
            self.kept_exact.append(signed)
            self.quotients[signed.get_id(), of.get_id()] = z3.simplify(sign * quotient)

    def members_of(self, n: Any) -> frozenset[int]:
        of = z3.simplify(expression(n), som=True)
        self.kept_exact.append(of)
        return self.divisors.get(of.get_id(), frozenset([of.get_id()]))

    def prove(self, claim: Any, what: str) -> None:
        """Fails with the values for which the claim is wrong."""
        claim = z3.simplify(claim)
        if z3.is_true(claim):
            return
        for tactics in TACTICS:
            solver = z3.Then(*tactics).solver()
            solver.set("timeout", PROOF_MS)
            solver.add(*self.known, *self.hints(claim), z3.Not(claim))
            found = solver.check()
            if found == z3.unsat:
                return
            if found == z3.sat:
                raise Refuted(f"{what}: not for {solver.model()}")
        raise NotProven(f"{what}: z3 says {solver.reason_unknown()}; {self.known} |- {claim}")

    def hints(self, claim: Any) -> list[Any]:
        """Two theorems that z3 finds only slowly; `test_hints_are_true` proves them.

        What is not larger has no larger quotient, and a multiple of c other than 0 is at least c
        away from 0.
        """
        found = []
        divisions = list(zip(self.divisions.values(), self.kept[::2], self.kept[1::2], strict=True))
        for (q, _), a, c in divisions:
            for (other, _), b, d in divisions:
                if q is not other and c.eq(d):
                    found.append(z3.Implies(a <= b, q <= other))
        if not z3.is_eq(claim) or not z3.is_int(claim.arg(0)):
            return found
        difference = claim.arg(0) - claim.arg(1)
        for divisor in {c.get_id(): c for c in self.kept[1::2]}.values():
            found.append(z3.Implies(difference >= 1, divisor * difference >= divisor))
            found.append(z3.Implies(difference <= -1, divisor * difference <= -divisor))
        return found


_path: Path | None = None


def path() -> Path:
    assert _path is not None, "Words exist only inside every_path"
    return _path


def every_path(run: Callable[[], None]) -> int:
    """Run a function along each of its ways; how many there are."""
    global _path
    waiting: list[list[bool]] = [[]]
    count = 0
    while waiting:
        _path = Path(waiting.pop())
        try:
            run()
        finally:
            waiting += _path.open
            _path = None
        count += 1
    return count


def expression(value: Any) -> Any:
    return value.of if isinstance(value, Word) else z3.IntVal(int(value))


def word(value: Any) -> Any:
    """A z3 expression as a Word, or as a plain int where it is a number."""
    value = z3.simplify(value, som=True)
    return value.as_long() if z3.is_int_value(value) else Word(value)


class Truth:
    """A comparison of Words; whoever asks takes one of two ways."""

    def __init__(self, of: Any) -> None:
        self.of = of

    def __bool__(self) -> bool:
        return path().decide(self.of)


class Word:
    """An unknown integer."""

    def __init__(self, of: Any) -> None:
        self.of = of

    def __repr__(self) -> str:
        return str(self.of)

    def __hash__(self) -> int:
        return int(self.of.hash())

    def __add__(self, other: Any) -> Any:
        return word(self.of + expression(other))

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return word(self.of - expression(other))

    def __rsub__(self, other: Any) -> Any:
        return word(expression(other) - self.of)

    def __mul__(self, other: Any) -> Any:
        return word(self.of * expression(other))

    __rmul__ = __mul__

    def __neg__(self) -> Any:
        return word(-self.of)

    def __floordiv__(self, other: Any) -> Any:
        of = z3.simplify(self.of, som=True)
        exact = path().quotients.get((of.get_id(), expression(other).get_id()))
        return word(path().divide(self.of, expression(other))[0] if exact is None else exact)

    def __rfloordiv__(self, other: Any) -> Any:
        return Word(expression(other)) // self

    def __mod__(self, other: Any) -> Any:
        return word(path().divide(self.of, expression(other))[1])

    def __rmod__(self, other: Any) -> Any:
        return Word(expression(other)) % self

    def __divmod__(self, other: Any) -> tuple[Any, Any]:
        q, r = path().divide(self.of, expression(other))
        return word(q), word(r)

    def __rdivmod__(self, other: Any) -> tuple[Any, Any]:
        return divmod(Word(expression(other)), self)

    def __eq__(self, other: object) -> Any:
        return Truth(self.of == expression(other))

    def __ne__(self, other: object) -> Any:
        return Truth(self.of != expression(other))

    def __lt__(self, other: Any) -> Any:
        return Truth(self.of < expression(other))

    def __le__(self, other: Any) -> Any:
        return Truth(self.of <= expression(other))

    def __gt__(self, other: Any) -> Any:
        return Truth(self.of > expression(other))

    def __ge__(self, other: Any) -> Any:
        return Truth(self.of >= expression(other))

    def __bool__(self) -> bool:
        return path().decide(self.of != 0)

    def __int__(self) -> Any:
        raise TypeError("an unknown integer has no value")


def any_common_divisor(a: Any, b: Any) -> Any:
    """In place of math.gcd: some positive number that divides both; gcd(0, b) is |b|."""
    if type(a) is int and a == 0:
        return b if b > 0 else -b
    if type(a) is int and type(b) is int:
        return gcd(a, b)
    if type(a) is int and a > 0:
        return next((g for g in range(a, 1, -1) if a % g == 0 and b % g == 0), 1)
    here = path()
    members = frozenset([*here.members_of(a), z3.simplify(expression(b), som=True).get_id()])
    if members in here.coprime:
        return 1
    g = here.fresh("g")
    here.assume(g > 0)
    for n in (a, b):
        quotient = here.fresh("m")
        here.assume(expression(n) == g * quotient)
        here.is_multiple(n, g, quotient)
    here.divisors[g.get_id()] = members
    here.coprime.add(frozenset([here.quotients[n, g.get_id()].get_id() for n in members]))
    return word(g)
