"""Module: parameters, buffers and modules inside, found by the names of attributes.

A ``Parameter`` given to an attribute is a parameter, a module is a part, ``register_buffer`` names
tensors that are saved but not trained. Keys of ``state_dict`` are those of torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from svod.base.above import above
from svod.base.errors import DTypeError, ShapeError, SvodError
from svod.dtype.convert import dtype_of
from svod.nn.backward_hooks import Passage
from svod.tensor.core import history, module_paths, recorded_settings, tensor_registry, tracing
from svod.tensor.core.public_functions import guard_class
from svod.tensor.core.recorded_settings import Table, is_plain
from svod.tensor.core.tensor_core import tensor_of, wrap
from svod.tensor.gradients.autograd import no_grad
from svod.tensor.gradients.gradient_hooks import Handle
from svod.tensor.recording.realize import realize
from svod.tensor.tensor import Tensor
from svod.tensor.views.aliases import linked

_INTERNAL = frozenset(("_is_ready",))  # says nothing about the result


class IncompatibleKeys(NamedTuple):
    """Keys a module has and a state has not, and the other way round."""

    missing_keys: list[str]
    unexpected_keys: list[str]


class StateError(SvodError, KeyError, RuntimeError):
    """A state dict whose keys or shapes do not fit the module."""

    def __str__(self) -> str:  # KeyError would print the repr
        return str(self.args[0])


class Parameter(Tensor):
    """A tensor that a module trains."""

    __slots__ = ()

    def __init__(self, data: Any, requires_grad: bool = True) -> None:
        given = tensor_of(data)
        super().__init__(given.detach() if history.is_leaf(given) else given)
        if requires_grad:
            self.requires_grad_()

    def __deepcopy__(self, memo: Any) -> Parameter:
        return Parameter(self.detach(), history.is_leaf(self))

    def __reduce__(self) -> Any:
        return _parameter, (self.numpy(), self._device, history.is_leaf(self))


def _parameter(array: Any, device: str | None, requires_grad: bool) -> Parameter:
    """A parameter that was pickled."""
    return Parameter(Tensor(array, device=device), requires_grad)


def _before(
    hook: Callable[..., Any], module: Module, args: Any, options: Any, sees_options: bool
) -> tuple[Any, Any]:
    """The arguments after a hook has seen them."""
    changed = hook(module, args, options) if sees_options else hook(module, args)
    if changed is None:
        return args, options
    if sees_options:
        return tuple(changed)
    return (changed if isinstance(changed, tuple) else (changed,)), options


class Module:
    """The base of layers and models: define ``forward`` and call the module."""

    training: bool
    _is_lazy = False  # whether parameters wait for the first input; see ``nn.lazy``

    def __init_subclass__(cls) -> None:
        guard_class(cls, "__init__", "forward")

    def __init__(self) -> None:
        self.__dict__.update(
            _parameters=Table(), _buffers=Table(), _modules=Table(), _transient=set(),
            _is_ready=False, _hooks=Table(), training=True,
        )  # fmt: skip

    def forward(self, *args: Any, **options: Any) -> Any:
        """What the module computes."""
        raise NotImplementedError(f"{type(self).__name__} does not define forward")

    def __call__(self, *args: Any, **options: Any) -> Any:
        if not self._is_ready:
            self.realize()
        if tracing.state.effects is not None:
            tracing.look_into(self)
        token = module_paths.running.set((self, module_paths.path_below(self)))
        try:
            return self._call(args, options)
        finally:
            module_paths.running.reset(token)

    def _call(self, args: Any, options: Any) -> Any:
        if not self._hooks:
            return self.forward(*args, **options)
        for kind, hook, sees_options in list(self._hooks.values()):
            if kind == "before":
                args, options = _before(hook, self, args, options, sees_options)
        passage = self._passage()
        if passage is not None:
            args = passage.inputs(args)
        found = self.forward(*args, **options)
        for kind, hook, sees_options in list(self._hooks.values()):
            if kind == "after":
                given = (args, options) if sees_options else (args,)
                changed = hook(self, *given, found)
                found = found if changed is None else changed
        return found if passage is None else passage.outputs(found)

    def _passage(self) -> Passage | None:
        kinds = ("backward before", "backward")
        before, after = [[h for k, h, _ in self._hooks.values() if k == kind] for kind in kinds]
        return Passage(self, before, after) if before or after else None

    def register_forward_pre_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> Handle:
        """Call ``hook(module, args)`` before forward; what it returns takes the place of args."""
        return self._hooked("before", hook, prepend, with_kwargs)

    def register_forward_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> Handle:
        """Call ``hook(module, args, result)`` after forward; what it returns is the result."""
        return self._hooked("after", hook, prepend, with_kwargs)

    def register_full_backward_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> Handle:
        """Call ``hook(module, gradients of args, gradients of result)`` on the way back; what it
        returns takes the place of the former."""
        return self._hooked("backward", hook, prepend, False)

    def register_full_backward_pre_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> Handle:
        """Call ``hook(module, gradients of result)`` on the way back; what it returns takes their
        place."""
        return self._hooked("backward before", hook, prepend, False)

    def _hooked(
        self, kind: str, hook: Callable[..., Any], prepend: bool, with_kwargs: bool
    ) -> Handle:
        if not callable(hook):
            raise DTypeError(f"a hook is a function, not a {type(hook).__name__}")
        handle = Handle(self._hooks)
        later = dict(self._hooks) if prepend else {}
        for known in later:
            del self._hooks[known]
        self._hooks[handle.id] = (kind, hook, with_kwargs)
        self._hooks.update(later)
        return handle

    def realize(self) -> Module:
        """Give every parameter and buffer its memory, all in one go."""
        tensors = [t for _, t in self._named("_parameters")] + [*self.buffers()]
        with history.paused():
            realize([t for t in tensors if not t.is_realized])
        is_whole = not self._unfinished()
        for part in self.modules():
            part.__dict__["_is_ready"] = is_whole
        return self

    def _unfinished(self) -> str:
        """The name of a part that does not know its size yet, or nothing."""
        return next((n or type(m).__name__ for n, m in self.named_modules() if m._is_lazy), "")

    # -- attributes ----------------------------------------------------------------------------

    def __setattr__(self, name: str, value: Any) -> None:
        if "_parameters" not in self.__dict__:
            raise AttributeError(f"{type(self).__name__}: call super().__init__() first")
        if isinstance(getattr(type(self), name, None), property):
            object.__setattr__(self, name, value)
        elif isinstance(value, (Parameter, Module)):
            table = self._parameters if isinstance(value, Parameter) else self._modules
            if name not in table:  # another parameter or module keeps the position
                self._drop(name)
            recorded_settings.changed()
            table[name] = value
            self.__dict__["_is_ready"] = False
        elif name in self._parameters or name in self._buffers:
            if value is not None and not isinstance(value, Tensor):
                raise DTypeError(f"{name} is a tensor of the module, not a {type(value).__name__}")
            (self._parameters if name in self._parameters else self._buffers)[name] = value
        else:
            recorded_settings.changed()
            self.__dict__[name] = value

    def __getattr__(self, name: str) -> Any:
        for table in ("_parameters", "_buffers", "_modules"):
            found = self.__dict__.get(table, {})
            if name in found:
                return found[name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __delattr__(self, name: str) -> None:
        if name in self.__dict__:
            object.__delattr__(self, name)
        else:
            self.__getattr__(name)
            self._drop(name)

    def _drop(self, name: str) -> None:
        for table in (self._parameters, self._buffers, self._modules, self.__dict__):
            table.pop(name, None)

    def register_parameter(self, name: str, value: Parameter | None) -> None:
        """A parameter, or None where the module can do without."""
        self._drop(name)
        self._parameters[name] = value

    def register_buffer(self, name: str, value: Tensor | None, persistent: bool = True) -> None:
        """A tensor that is kept with the module but not trained."""
        self._drop(name)
        self._buffers[name] = value
        (self._transient.discard if persistent else self._transient.add)(name)

    def register_module(self, name: str, module: Module | None) -> None:
        """A module inside this one."""
        if module is not None and not isinstance(module, Module):
            raise DTypeError(f"{name!r} must be a module, not a {type(module).__name__}")
        self._drop(name)
        self._modules[name] = module

    add_module = register_module

    # -- walks ---------------------------------------------------------------------------------

    def named_modules(
        self, memo: set[Module] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Module]]:
        """This module and all inside it with dotted names; a shared one appears once."""
        seen = set() if memo is None else memo
        stack = [(prefix, self)]
        while stack:
            name, module = stack.pop()
            if remove_duplicate:
                if module in seen:
                    continue
                seen.add(module)
            yield name, module
            parts = [(f"{name}.{k}" if name else k, m) for k, m in module._modules.items()]
            stack.extend(reversed([(k, m) for k, m in parts if m is not None]))

    def modules(self) -> Iterator[Module]:
        """This module and all inside it."""
        return (m for _, m in self.named_modules())

    def children(self) -> Iterator[Module]:
        """The modules directly inside."""
        return (m for m in self._modules.values() if m is not None)

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """The modules directly inside, with their names."""
        return ((k, m) for k, m in self._modules.items() if m is not None)

    def _named(
        self, table: str, prefix: str = "", recurse: bool = True, unique: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        seen: set[int] = set()
        inside = self.named_modules(prefix=prefix, remove_duplicate=unique)
        for path, module in inside if recurse else ((prefix, self),):
            for name, value in getattr(module, table).items():
                if value is None or (unique and id(value) in seen):
                    continue
                seen.add(id(value))
                yield (f"{path}.{name}" if path else name), value

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """All parameters with dotted names, or those of this module alone."""
        if lazy := self._unfinished():
            raise ShapeError(f"{lazy} has no parameters yet: call the module once before")
        return self._named("_parameters", prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Tensor]:
        """All parameters, or those of this module alone."""
        return (p for _, p in self.named_parameters(recurse=recurse))

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """All buffers with dotted names, or those of this module alone."""
        return self._named("_buffers", prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """All buffers, or those of this module alone."""
        return (b for _, b in self.named_buffers(recurse=recurse))

    def get_submodule(self, target: str) -> Module:
        """The module with a dotted name; the empty name is this one."""
        found = dict(self.named_modules()).get(target)
        if found is None:
            raise StateError(f"{type(self).__name__} has no module {target!r}")
        return found

    def set_submodule(self, target: str, module: Module) -> None:
        """Put another module in the place of the one with a dotted name."""
        path, _, name = target.rpartition(".")
        if not name:
            raise StateError("set_submodule needs the name of a module inside")
        if not isinstance(module, Module):
            raise DTypeError(f"{target} must be a module, not a {type(module).__name__}")
        self.get_submodule(target)
        self.get_submodule(path)._modules[name] = module
        for part in self.modules():
            part.__dict__["_is_ready"] = False

    def get_parameter(self, target: str) -> Tensor:
        """The parameter with a dotted name."""
        return self._with_name("_parameters", target)

    def get_buffer(self, target: str) -> Tensor:
        """The buffer with a dotted name."""
        return self._with_name("_buffers", target)

    def _with_name(self, table: str, target: str) -> Tensor:
        path, _, name = target.rpartition(".")
        found: Tensor | None = getattr(self.get_submodule(path), table).get(name)
        if found is None:
            raise StateError(f"{type(self).__name__} has no {table[1:-1]} {target!r}")
        return found

    def apply(self, change: Callable[[Module], Any]) -> Module:
        """Call a function with every module, parts first."""
        for part in self.children():
            part.apply(change)
        change(self)
        return self

    # -- state ---------------------------------------------------------------------------------

    def _state(self) -> Iterator[tuple[str, Tensor]]:
        for path, module in self.named_modules():
            lead = f"{path}." if path else ""
            for name, value in module._parameters.items():
                if value is not None:
                    yield lead + name, value
            for name, value in module._buffers.items():
                if value is not None and name not in module._transient:
                    yield lead + name, value

    def state_dict(
        self,
        *,
        destination: dict[str, Any] | None = None,
        prefix: str = "",
        keep_vars: bool = False,
    ) -> dict[str, Tensor]:
        """Parameters and buffers by name; the tensors share the memory of the module.

        With ``keep_vars`` they are the parameters themselves.
        """
        if lazy := self._unfinished():
            raise ShapeError(f"{lazy} has no parameters yet: call the module once before")
        if not self._is_ready:
            self.realize()
        found = {} if destination is None else destination
        for name, t in self._state():
            found[prefix + name] = t if keep_vars else linked(wrap(t.uop, t._device), t)
        return found

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> IncompatibleKeys:
        """Take over values by name; returns the keys that were missing and those unexpected.

        With ``assign`` the tensors of the state take the place of those of the module, with their
        dtype and device.
        """
        state = state_dict
        for path, module in list(self.named_modules()):
            if module._is_lazy:
                module.learn_size(state, f"{path}." if path else "")
        if not self._is_ready:
            self.realize()
        own = dict(self._state())
        missing = [k for k in own if k not in state]
        unexpected = [k for k in state if k not in own]
        if strict and (missing or unexpected):
            raise StateError(
                f"the state does not fit {type(self).__name__}: missing {missing}, "
                f"unexpected {unexpected}"
            )
        pairs = [(k, own[k], tensor_of(state[k])) for k in own if k in state]
        for key, t, value in pairs:
            if t.shape != value.shape:
                raise StateError(f"{key}: the state has shape {value.shape}, not {t.shape}")
        with history.paused():
            for _, t, value in pairs:
                if assign:
                    t.data = value
                else:
                    t.assign(value.detach().to(t.device))
            realize([t for _, t, _ in pairs])
        return IncompatibleKeys(missing, unexpected)

    # -- what recorded functions depend on -----------------------------------------------------

    def _plan_flags(self) -> dict[str, Any]:
        """Plain attributes, and which parameters are trained."""
        own = self.__dict__
        found = {k: v for k, v in own.items() if k not in _INTERNAL and is_plain(v)}
        trained = tuple([history.is_leaf(p) for p in self._parameters.values()])
        return {**found, "trained parameters": trained, "hooks": tuple(self._hooks)}

    def _plan_objects(self) -> dict[str, Any]:
        """Parameters, buffers, parts, and other attributes that are tensors with memory."""
        found = {**self._parameters, **self._buffers, **self._modules}
        for name, value in self.__dict__.items():
            if isinstance(value, Tensor) and tensor_registry.buffer_node(value.uop) is not None:
                found[name] = value
        return {k: v for k, v in found.items() if v is not None}

    def _plan_parts(self) -> list[Module]:
        """The modules inside."""
        return list(self.modules())

    # -- modes and places ----------------------------------------------------------------------

    def train(self, mode: bool = True) -> Module:
        """Training mode, or with False evaluation mode."""
        for module in self.modules():
            module.__dict__["training"] = mode
        recorded_settings.changed()
        return self

    def eval(self) -> Module:
        """Evaluation mode."""
        return self.train(False)

    def requires_grad_(self, requires_grad: bool = True) -> Module:
        """Whether the parameters are trained."""
        for p in self.parameters():
            p.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients of all parameters, or make zeros of those there are."""
        for p in self.parameters():
            if set_to_none:
                p.grad = None
            elif p.grad is not None:
                p.grad = p.grad.zeros_like()

    def to(self, *targets: Any, dtype: Any = None, device: str | None = None) -> Module:
        """Floats in another dtype, everything on another device."""
        with no_grad():
            for t in [*self.parameters(), *self.buffers()]:
                found = t.to(*targets, dtype=dtype, device=device)
                if t.dtype.kind != "f":
                    found = found.cast(t.dtype)
                if found is not t:  # what showed its elements keeps the old ones
                    t.uop, t._device, t._link = found.uop, found._device, None
                t.grad = None
        self.__dict__["_is_ready"] = False
        return self.realize()

    def cpu(self) -> Module:
        """Everything on the CPU."""
        return self.to(device="CPU")

    def cuda(self, device: int | None = None) -> Module:
        """Everything on a GPU."""
        return self.to(device="CUDA" if device is None else f"CUDA:{device}")

    def type(self, dst_type: Any) -> Module:
        """Floats in another dtype."""
        return self.to(dtype=dtype_of(dst_type))

    def float(self) -> Module:
        """Floats as float32."""
        return self.to(dtype=dtype_of("float32"))

    def double(self) -> Module:
        """Floats as float64."""
        return self.to(dtype=dtype_of("float64"))

    def half(self) -> Module:
        """Floats as float16."""
        return self.to(dtype=dtype_of("float16"))

    def bfloat16(self) -> Module:
        """Floats as bfloat16."""
        return self.to(dtype=dtype_of("bfloat16"))

    # -- text ----------------------------------------------------------------------------------

    def extra_repr(self) -> str:
        """What to show of this module beside its parts."""
        return ""

    def view(
        self, *inputs: Any, title: str | None = None, runs: int = 3, browser: bool = True
    ) -> Any:
        """Serve a page about the plan of a call with these inputs, and open it in the browser.

        The server ends with the process, or with ``close()`` of what is returned.

            model.view(svod.zeros(1, 3, 224, 224))
        """
        title = title or type(self).__name__
        return above("viz").view_result(self(*inputs), title=title, runs=runs, browser=browser)

    def __repr__(self) -> str:
        parts = [f"({k}): {m!r}".replace("\n", "\n  ") for k, m in self.named_children()]
        if not parts:
            return f"{type(self).__name__}({self.extra_repr()})"
        inner = "\n  ".join([*([self.extra_repr()] if self.extra_repr() else []), *parts])
        return f"{type(self).__name__}(\n  {inner}\n)"


guard_class(Parameter, "__init__")
guard_class(Module, "__init__", "load_state_dict", "to", "register_buffer", "register_parameter")
