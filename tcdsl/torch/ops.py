"""Definitions as PyTorch operators.

    op(f, "mylib::f")    mylib::f(Tensor x, Tensor w) -> Tensor
                         mylib::_f_derived(Tensor[] inputs, SymInt[] sizes, str path) -> Tensor[]

The second operator is every derivative and every batched form of the first (:mod:`family`), so
that a saved graph finds its backward pass in a new process as soon as ``op`` has run there.

    CPU, CUDA           a call of the function, on the caller's stream
    fake                the inferred shapes (:mod:`sizes`); results are dense
    Autograd            saves the inputs and what is worth keeping, calls the derivative by those
                        inputs that need a gradient, or along tangents (:mod:`autograd`)
    vmap                the batched form; where there is none, one call for each batch; in
                        torch.autograd, too (:mod:`legacy_vmap`)
    Autocast            inputs are converted to the declared types

The schema is defined on a ``torch.library.Library``: ``torch.library.custom_op`` checks each call
for aliases and mutations, of which a function that always makes its results has none.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any

import torch

from tcdsl.api import Function, require_function, shortened
from tcdsl.errors import MIXED_DEVICES, OUT_REQUIRED
from tcdsl.lang.types.dtypes import DType
from tcdsl.lang.types.head import Head
from tcdsl.options import BAD_ARGUMENT
from tcdsl.records import dataclass
from tcdsl.torch import legacy_vmap
from tcdsl.torch.autograd import (
    Call,
    below_autograd,
    has_gradient,
    is_plain,
    recorded,
    redispatched,
)
from tcdsl.torch.direct import DirectCall, Known, Layouts, tell_inductor
from tcdsl.torch.family import Batch, Form, extended, step
from tcdsl.torch.untraced import untraced

_NAME = re.compile(r"([A-Za-z_]\w*)::([A-Za-z_]\w*)")
_AUTOCAST = {"cpu": "AutocastCPU", "cuda": "AutocastCUDA"}
# Sparse tensors and others are none that a function takes; it says so better than the dispatcher.
_KERNEL_KEYS = (
    *(f"{kind}{device}" for kind in ("", "Sparse", "SparseCsr", "NestedTensor", "Quantized")
      for device in ("CPU", "CUDA")),
    "MkldnnCPU",
)  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class _Registered:
    """What a name stands for; the libraries undo their registrations when they are freed."""

    text: tuple[object, ...]
    form: Form
    operator: Any
    library: Any


_REGISTERED: dict[str, _Registered] = {}


def op(f: Function, name: str) -> Any:
    """Register *f* as the PyTorch operator *name*, and return it: ``torch.ops.<namespace>.<name>``.

    It takes tensors, by position or by the parameters' names (a number as a 0-D tensor), and a
    definition's sizes as integers.  It returns new tensors: one, or a tuple if there are several.
    It works under autograd, ``torch.compile``, ``torch.export``, ``torch.func`` and autocast.

    :arg name: ``"namespace::name"``; the same definition may be registered again.
    :raises OptionError: (TC064) *name* has no namespace, or stands for another operator.
    :raises ShapeError: (TC049) a result of *f* is read before it is written.
    """
    require_function(f, "op")
    namespace, short = _parts(name)
    head = f.comprehension
    for output in head.outputs:
        if head.tensors[output].needs_out:
            raise OUT_REQUIRED(head.source, head.tensors[output].span, name=output)
    text = (f.source, head.name, f.options)
    known = _REGISTERED.get(name)
    if known is None:
        known = _REGISTERED[name] = _register(Form(f), namespace, short, text)
    elif known.text != text:
        raise _refused(f"{name!r} is another definition's", "give this one a name of its own")
    return known.operator


def direct_call(
    name: str, path: str, sizes: Sequence[int], layouts: Layouts, results: Layouts
) -> Callable[..., Any]:
    """Return a call of the operator *name* in Inductor's code, where all layouts are known.

    Code in Inductor's caches calls it by these arguments: new ones come last, with defaults.

    :arg path: the form's, of an operator ``_f_derived``; else "".
    """
    namespace, _, short = name.partition("::")
    plain = short.removeprefix("_").removesuffix("_derived") if path else short
    form = _REGISTERED[f"{namespace}::{plain}"].form
    known = Known(f"{namespace}::{plain}", layouts, results, is_listed=bool(path))
    return DirectCall(form.at(path) if path else form, sizes, known).quickly()


def _parts(name: object) -> tuple[str, str]:
    match = _NAME.fullmatch(name) if isinstance(name, str) else None
    if match is None:
        is_plain = isinstance(name, str) and "::" not in name
        why = "without a namespace" if is_plain else "which is no namespace and name of letters"
        what = f"it is {shortened(name)}, {why}"
        raise _refused(what, 'give "namespace::name", such as name="mylib::softmax"')
    return match[1], match[2]


def _refused(what: str, advice: str) -> Exception:
    return BAD_ARGUMENT(argument="name", what=what, advice=advice)


def _register(form: Form, namespace: str, name: str, text: tuple[object, ...]) -> _Registered:
    if hasattr(getattr(torch.ops, namespace), name):  # of other overloads, too, as aten::add
        what = f"torch.ops.{namespace}.{name} is something else already"
        raise _refused(what, "give another name, in a namespace of your own")
    derived = f"_{name}_derived"
    tags = (torch.Tag.pt2_compliant_tag, torch.Tag.flexible_layout)
    try:
        library = torch.library.Library(namespace, "FRAGMENT")
        library.define(f"{name}{_schema(form.head)}", tags=tags)
        library.define(
            f"{derived}(Tensor[] inputs, SymInt[] sizes, str path) -> Tensor[]", tags=tags
        )
    except (RuntimeError, ValueError) as error:
        what = f"PyTorch refuses {namespace}::{name}: {str(error).splitlines()[0]}"
        raise _refused(what, "give another name") from None
    space = getattr(torch.ops, namespace)
    further = getattr(space, derived).default
    _Derived(form, further).register(library, derived)
    operator = getattr(space, name).default
    _Operator(form, operator, further).register(library, name)
    return _Registered(text, form, operator, library)


def _schema(head: Head) -> str:
    """Return ``(Tensor x, SymInt N) -> (Tensor, Tensor)``."""
    kinds = (("SymInt" if n in head.size_parameters else "Tensor") for n in head.parameters)
    params = ", ".join(f"{k} {n}" for k, n in zip(kinds, head.parameters, strict=True))
    returns = ", ".join("Tensor" for _ in head.outputs)
    return f"({params}) -> {f'({returns})' if len(head.outputs) > 1 else returns}"


def _place(head: Head, tensors: Sequence[torch.Tensor]) -> torch.device:
    """Return the device of results: that of tensors with dimensions; numbers may be elsewhere.

    :raises TargetError: (TC089) there are several.
    """
    sized = {name: x.device for name, x in zip(head.inputs, tensors, strict=True) if x.dim()}
    if len(set(sized.values())) > 1:
        raise MIXED_DEVICES(places=", ".join(f"{name!r} on {at}" for name, at in sized.items()))
    found = next(iter(sized.values()), None) or next((x.device for x in tensors), None)
    return found or torch.device("cpu")


def _fake(form: Form, tensors: Sequence[torch.Tensor], sizes: Sequence[int]) -> list[torch.Tensor]:
    """Return results without values.

    :raises TCError: types, shapes or devices do not fit the def.
    """
    head, shapes = form.head, form.require(tensors, sizes)
    place = _place(head, tensors)
    return [
        torch.empty(shape, dtype=_torch_type(head.tensors[name].dtype), device=place)
        for name, shape in zip(head.outputs, shapes, strict=True)
    ]


def _torch_type(dtype: DType) -> torch.dtype:
    found: torch.dtype = getattr(torch, dtype.library_name)
    return found


def _key_set(key: str) -> Any:
    return torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key))


def _converted(head: Head, tensors: Sequence[torch.Tensor], device: str) -> list[torch.Tensor]:
    """Return *tensors* on *device* in the declared types, as PyTorch's own rules of autocast do.

    Doubles, integers and other devices' tensors stay.
    """
    found = []
    for name, x in zip(head.inputs, tensors, strict=True):
        declared = head.tensors[name].dtype
        is_kept = x.dtype == torch.float64 or not x.is_floating_point() or x.device.type != device
        found.append(x.to(_torch_type(declared)) if declared.is_float and not is_kept else x)
    return found


def _as_list(found: Any) -> list[torch.Tensor]:
    return list(found) if isinstance(found, tuple) else [found]


# --- the operator itself -------------------------------------------------------------------
@dataclass(frozen=True, eq=False)
class _Operator:
    """``f(Tensor x, ...) -> Tensor``."""

    form: Form
    operator: Any
    derived: Any

    def register(self, library: Any, name: str) -> None:
        """Give *name* its kernels and rules."""
        for key in _KERNEL_KEYS:
            library.impl(name, untraced(self.kernel), key)
        for device, key in _AUTOCAST.items():
            library.impl(name, untraced(self._autocast(device, key)), key)
        qualified = f"{library.ns}::{name}"
        torch.library.register_fake(qualified, self._fake, lib=library)
        library.impl(name, untraced(self._autograd), "Autograd", with_keyset=True)
        torch.library.register_vmap(qualified, untraced(self._vmap), lib=library)
        library.impl(name, untraced(legacy_vmap.batched(self._vmap)), "Batched")

    def _split(self, args: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Return what *args* has for the tensors, and what for the sizes."""
        head = self.form.head
        tensors: list[Any] = []
        sizes: list[Any] = []
        for name, arg in zip(head.parameters, args, strict=True):
            (sizes if name in head.size_parameters else tensors).append(arg)
        return tensors, sizes

    @cached_property
    def sized(self) -> bool:
        """Whether some arguments are sizes."""
        return bool(self.form.head.size_parameters)

    @cached_property
    def kernel(self) -> Callable[..., Any]:
        """What computes the results: the function, unless numbers may be in the host's memory."""
        if not self.form.has_numbers:
            return self.form.function
        return lambda *args: self.form.call(*self._split(args))

    def _fake(self, *args: Any) -> Any:
        tell_inductor(self.operator)
        found = _fake(self.form, *self._split(args))
        return tuple(found) if len(found) > 1 else found[0]

    def _autocast(self, device: str, key: str) -> Callable[..., Any]:
        form, operator, without = self.form, self.operator, _key_set(key)

        def autocast(*args: Any) -> Any:
            tensors, sizes = self._split(args)
            with torch._C._ExcludeDispatchKeyGuard(without):
                return operator(*form.arguments(_converted(form.head, tensors, device), sizes))

        return autocast

    def _autograd(self, keys: Any, *args: Any) -> Any:
        tensors, sizes = self._split(args) if self.sized else (args, ())
        is_kernel_next = is_plain(keys)
        if not is_kernel_next:
            self.form.refuse_nested(tensors)
        if not has_gradient(tensors):
            if is_kernel_next:
                return self.kernel(*args)
            with below_autograd():
                return redispatched(self.operator, keys, *args)

        def run(inputs: Sequence[torch.Tensor], step: str) -> list[torch.Tensor]:
            if step:
                return list(redispatched(self.derived, keys, list(inputs), sizes, step))
            args = self.form.arguments(inputs, sizes)
            return _as_list(redispatched(self.operator, keys, *args))

        call = Call(self.form, self.derived, "", sizes, run, is_kernel_next)
        found = recorded(call, tensors)
        return found if len(found) > 1 else found[0]

    def _vmap(self, info: Any, in_dims: Sequence[int | None], *args: Any) -> tuple[Any, Any]:
        tensors, sizes = self._split(args)
        dims, _ = self._split(in_dims)
        call = _Batched(self.form, self.derived, "", tensors, sizes, dims, info.batch_size)

        def one(row: list[torch.Tensor]) -> list[torch.Tensor]:
            return _as_list(self.operator(*self.form.arguments(row, sizes)))

        found, out_dims = call.run(one)
        return (tuple(found), tuple(out_dims)) if len(found) > 1 else (found[0], out_dims[0])


# --- its derivatives and batched forms -----------------------------------------------------
@dataclass(frozen=True, eq=False)
class _Derived:
    """``_f_derived(Tensor[] inputs, SymInt[] sizes, str path) -> Tensor[]``."""

    form: Form
    operator: Any

    def register(self, library: Any, name: str) -> None:
        """Give *name* its kernels and rules."""
        for key in _KERNEL_KEYS:
            library.impl(name, untraced(self._call), key)
        for device, key in _AUTOCAST.items():
            library.impl(name, untraced(self._autocast(device, key)), key)
        qualified = f"{library.ns}::{name}"
        torch.library.register_fake(qualified, self._fake, lib=library)
        library.impl(name, untraced(self._autograd), "Autograd", with_keyset=True)
        torch.library.register_vmap(qualified, untraced(self._vmap), lib=library)
        library.impl(name, untraced(legacy_vmap.batched(self._vmap)), "Batched")

    def _autocast(self, device: str, key: str) -> Callable[..., Any]:
        """Return the rule: at a level of ``torch.vmap`` the operator itself has met none."""
        form, operator, without = self.form, self.operator, _key_set(key)

        def autocast(inputs: list[Any], sizes: list[int], path: str) -> Any:
            converted = _converted(form.at(path).head, inputs, device)
            with torch._C._ExcludeDispatchKeyGuard(without):
                return operator(converted, sizes, path)

        return autocast

    def _call(self, inputs: list[Any], sizes: list[int], path: str) -> list[torch.Tensor]:
        form = self.form.at(path)
        return _as_list(form.call(inputs, sizes))

    def _fake(self, inputs: list[Any], sizes: list[int], path: str) -> list[torch.Tensor]:
        tell_inductor(self.operator)
        last = path.rpartition(";")[2]
        if last[0] in "db":  # a gradient is like its input: nothing has to be derived
            like = [inputs[int(position)] for position in last[1:].split(",")]
            return [torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in like]
        return _fake(self.form.at(path), inputs, sizes)

    def _autograd(self, keys: Any, inputs: list[Any], sizes: list[int], path: str) -> Any:
        if not has_gradient(inputs):
            if is_plain(keys):
                return self._call(inputs, sizes, path)
            with below_autograd():
                return redispatched(self.operator, keys, inputs, sizes, path)

        def run(tensors: Sequence[torch.Tensor], step: str) -> list[torch.Tensor]:
            full = extended(path, step) if step else path
            return list(redispatched(self.operator, keys, list(tensors), sizes, full))

        form = self.form.at(path)
        call = Call(form, self.operator, path, sizes, run, is_plain(keys))
        return list(recorded(call, inputs))

    def _vmap(
        self, info: Any, in_dims: Any, inputs: list[Any], sizes: list[int], path: str
    ) -> tuple[Any, Any]:
        dims = in_dims[0]
        form = self.form.at(path)
        call = _Batched(form, self.operator, path, inputs, sizes, dims, info.batch_size)
        return call.run(lambda tensors: self.operator(tensors, sizes, path))


@dataclass(frozen=True, slots=True, eq=False)
class _Batched:
    """One call under vmap."""

    form: Form
    derived: Any
    path: str
    inputs: Sequence[torch.Tensor]
    sizes: Sequence[int]
    dims: Sequence[int | None]
    batch_size: int

    def run(
        self, one: Callable[[list[torch.Tensor]], Sequence[torch.Tensor]]
    ) -> tuple[list[torch.Tensor], list[int | None]]:
        """Return the results and their batch dimensions; *one* computes those of one batch."""
        positions = tuple(i for i, dim in enumerate(self.dims) if dim is not None)
        batch = self.form.batch(positions)
        first = [
            x if dim is None else x.movedim(dim, 0)
            for x, dim in zip(self.inputs, self.dims, strict=True)
        ]
        if batch is None:
            return self._one_by_one(first, one)
        return self._at_once(first, positions, batch)

    def _at_once(
        self, first: list[torch.Tensor], positions: Sequence[int], batch: Batch
    ) -> tuple[list[torch.Tensor], list[int | None]]:
        # An input that is updated with batched values is batched, too.
        inputs = [
            x.expand(self.batch_size, *x.shape) if i in batch.inputs and i not in positions else x
            for i, x in enumerate(first)
        ]
        path = extended(self.path, step("v", positions))
        found = self.derived(inputs, self.sizes, path)
        return list(found), [0 if is_batched else None for is_batched in batch.outputs]

    def _one_by_one(
        self, first: list[torch.Tensor], one: Callable[[list[torch.Tensor]], Sequence[torch.Tensor]]
    ) -> tuple[list[torch.Tensor], list[int | None]]:
        rows: Iterable[list[torch.Tensor]] = (
            [x if dim is None else x[b] for x, dim in zip(first, self.dims, strict=True)]
            for b in range(self.batch_size)
        )
        found = zip(*(one(row) for row in rows), strict=True)
        stacked = [torch.stack(list(results)) for results in found]
        return stacked, [0] * len(stacked)
