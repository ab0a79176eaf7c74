"""Which tensors of the kernel are inputs, outputs or both, and which result of the reference belongs to which. Pure.

A pointer that may be written is non-const, or any tensor of a Triton entry. It is *bound* when a parameter of the reference
is paired with it, else *free*. ``outputs`` and ``inout`` of the reference always win. Otherwise:

- A reference that returns tensors: the free pointers are the outputs, in order or by the names of a dict. If they do not
  suffice, bound pointers that the reference writes are taken too, then (not in Triton) all bound ones that are not const;
  a bound one that gets a result is inout. A bound pointer without a result is an input whose const was forgotten, or
  inout if the reference writes it. What a Triton kernel has no pointer for it hands back.
- A reference that returns nothing: what it writes is an output, or inout when the old values make a difference to the
  result (found by calling it with others) or come from ``make_inputs``; what it does not write is an input.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..errors import KernelError
from ..spec.place import place
from .matching import Sides
from .problem import Role
from .shapes import find


@dataclass(frozen=True)
class Results:
    """What the reference gives: how many tensors it returns and their names, and the kernel's tensors that it writes."""

    count: int
    names: tuple[str, ...] = ()
    written: frozenset[str] = frozenset()
    dependent: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Directions:
    """The role of each tensor, the output of each result in order, and the outputs that the kernel hands back."""

    roles: Mapping[str, Role]
    returned: tuple[str, ...] = ()
    handed_back: tuple[str, ...] = ()


def direct(sides: Sides, bound: Mapping[str, str], results: Results) -> Directions:
    """Roles for all tensors of ``sides.kernel``; ``bound`` maps those with a parameter of the reference to its name.

    KernelError where counts or names contradict each other.
    """
    tensors = [k for k in sides.kernel if k.kind == "tensor"]
    writable = [k.name for k in tensors if not k.const]
    for k in tensors:
        if k.const and k.name not in bound:
            raise sides.unmatched(k.name, "kernel")
    outputs, extra = _declared(sides, "outputs", bound, results.count > 0)
    inout, _ = _declared(sides, "inout", bound, False)
    choice = _Choice(sides, bound, writable, outputs, inout or [], extra)
    return choice.returning(results) if results.count else choice.in_place(results)


@dataclass(frozen=True)
class _Choice:
    sides: Sides
    bound: Mapping[str, str]
    writable: Sequence[str]
    outputs: Sequence[str] | None
    inout: Sequence[str]
    extra: Sequence[str]

    def in_place(self, results: Results) -> Directions:
        roles: dict[str, Role] = dict.fromkeys(self.bound, "input")
        for name in self.writable:
            if name not in self.bound:
                raise self.sides.unmatched(name, "kernel")
            if name in self.inout:
                roles[name] = "inout"
            elif self.outputs is not None:
                roles[name] = "output" if name in self.outputs else "input"
            elif name in results.written:
                roles[name] = "inout" if name in results.dependent else "output"
        if all(role == "input" for role in roles.values()):
            where = self.sides.reference.where
            raise KernelError(f"{where}: reference() returns nothing and writes into no tensor that {self.sides.call} may write")
        return Directions(roles)

    def returning(self, results: Results) -> Directions:
        pool = self._pool(results)
        handed_back: tuple[str, ...] = ()
        if len(pool) < results.count and self.sides.spec.backend == "triton":
            taken = self._assign(pool, results)
            handed_back = self._names_back(taken, results)
        elif len(pool) != results.count:
            raise self._count_error(pool, results)
        else:
            taken = self._assign(pool, results)
        back = iter(handed_back)
        returned = tuple(next(back) if name is None else name for name in taken)
        roles: dict[str, Role] = {}
        for name in [*self.bound, *(n for n in self.writable if n not in self.bound)]:
            roles[name] = self._role(name, returned, results)
        roles.update(dict.fromkeys(handed_back, "output"))
        return Directions(roles, returned, handed_back)

    def _role(self, name: str, returned: Sequence[str], results: Results) -> Role:
        if name in self.inout:
            return "inout"
        if self.outputs is not None and name in self.outputs:
            return "output"
        if name in self.bound and name in self.writable:
            return "inout" if name in returned or name in results.written else "input"
        return "output" if name in returned else "input"

    def _pool(self, results: Results) -> list[str]:
        """The pointers that the results go to."""
        free = [n for n in self.writable if n not in self.bound]
        if self.outputs is not None:
            stray = [n for n in free if n not in self.outputs and n not in self.inout]
            if stray:
                raise self.sides.unmatched(stray[0], "kernel")
            if len(self.outputs) == results.count:
                return list(self.outputs)
            return [n for n in self.writable if n in self.outputs or n in self.inout]
        named = [find(n, self.writable) for n in results.names]
        matched = {n for n in named if n is not None}
        if len(free) <= results.count and matched.issuperset(free) and matched:
            return [n for n in self.writable if n in matched]
        if len(free) == results.count:
            return free
        touched = [n for n in self.writable if n in free or n in self.inout or n in results.written]
        if len(touched) == results.count or self.sides.spec.backend == "triton":
            return touched
        return list(self.writable) if len(self.writable) == results.count else touched

    def _assign(self, pool: Sequence[str], results: Results) -> list[str | None]:
        """The pointer of each result, by name and then in order; None where none is left."""
        if not results.names:
            return [*pool, *[None] * (results.count - len(pool))]
        taken: list[str | None] = [find(name, pool) for name in results.names]
        left = iter([n for n in pool if n not in taken])
        return [name or next(left, None) for name in taken]

    def _names_back(self, taken: Sequence[str | None], results: Results) -> tuple[str, ...]:
        used = {k.name for k in self.sides.kernel}
        names: list[str] = []
        for i, name in enumerate(taken):
            if name is None:
                wanted = results.names[i] if results.names else f"out{i}"
                if not results.names and len(self.extra) == sum(t is None for t in taken):
                    wanted = self.extra[len(names)]
                while wanted in used:
                    wanted += "_"
                used.add(wanted)
                names.append(wanted)
        return tuple(names)

    def _count_error(self, pool: Sequence[str], results: Results) -> KernelError:
        names = f" ({', '.join(results.names)})" if results.names else ""
        pointers = f"{len(pool)} ({', '.join(pool)})" if pool else "none"
        cure = "say which with outputs = [...] or inout = [...]" if len(self.writable) > len(pool) else "these must be as many"
        counts = f"reference() returns {results.count}{names}, and the output pointers are {pointers}"
        return KernelError(f"{self.sides.where}: {counts}: {cure}; {self.sides}")


def _declared(sides: Sides, what: str, bound: Mapping[str, str], may_be_new: bool) -> tuple[list[str] | None, list[str]]:
    """``outputs`` or ``inout`` by the kernel's names, and those of a Triton kernel's outputs that have no parameter."""
    given = sides.reference.outputs if what == "outputs" else sides.reference.inout
    if given is None:
        return None, []
    tensors = {k.name: k for k in sides.kernel if k.kind == "tensor"}
    theirs = {parameter: name for name, parameter in bound.items()}
    names, extra = [], []
    for name in given:
        key = find(name, tensors)
        if key is None and (other := find(name, theirs)) is not None:
            key = theirs[other]
        if key is None and may_be_new and sides.spec.backend == "triton":
            extra.append(name)
            continue
        if key is None:
            raise KernelError(f"{place(sides.reference.path)}: '{name}' in {what} binds to nothing: {sides}")
        if tensors[key].const:
            raise KernelError(f"{sides.at(tensors[key])}: '{key}' is const, and {sides.reference.path.name} names it in {what}")
        names.append(key)
    return names, extra
