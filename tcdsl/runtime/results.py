"""The outputs of a call: the caller's ``out=``, memory to compute into, what is returned.

out=        an array, one an output in order, or a mapping from names to arrays
given       the caller's arrays by the output's name; a mapping may leave some out
views       the memory of every output, the caller's or new
delivered   the caller's own objects, or new arrays of the caller's library
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

from tcdsl.errors import BAD_OUT, OUT_REQUIRED, TCError
from tcdsl.lang.syntax.spelling import did_you_mean
from tcdsl.lang.types.head import Extents, Head
from tcdsl.runtime.arguments import allocate, as_output, deliver
from tcdsl.runtime.arrays import NUMPY, PYTHON, NDArray, is_plain_array, overlaps

_SHARING = (NUMPY, PYTHON, "torch")  # libraries whose arrays share the memory they are made from


class Results:
    """The outputs of one executable, which returns arrays of *library*."""

    def __init__(self, head: Head, extents: Extents, library: str) -> None:
        self.head = head
        self.library = library
        tensors = head.tensors
        self.outputs = [(name, extents.shapes[name], tensors[name].dtype) for name in head.outputs]
        self._plain = [(shape, dtype.numpy) for _, shape, dtype in self.outputs]
        self.needed = [name for name in head.outputs if tensors[name].needs_out]

    def fresh(self) -> list[NDArray]:
        """Return new memory for every output."""
        return [allocate(shape, dtype, name) for name, shape, dtype in self.outputs]

    def given(self, out: Any) -> dict[str, Any]:
        """Return the caller's arrays by the output's name.

        :raises ShapeError: there are too many or too few, or one is missing whose first contents
            the program reads.
        """
        given = outputs_by_name(self.head, out)
        for name in self.needed:
            if name not in given:
                c = self.head
                raise OUT_REQUIRED(c.source, c.tensors[name].span, name=name)
        return given

    def views(self, given: Mapping[str, Any]) -> list[NDArray]:
        """Return the memory of every output.

        :raises ShapeError: an array cannot be written, or two of them share memory.
        """
        views = [
            self._view(position, given[name]) if name in given else allocate(shape, dtype, name)
            for position, (name, shape, dtype) in enumerate(self.outputs)
        ]
        for second, view in enumerate(views):
            for first, other in enumerate(views[:second]):
                if overlaps(view, other):
                    raise self._sharing(first, second)
        return views

    def _view(self, position: int, out: Any) -> NDArray:
        """Return a view of *out*, after checking that it may be written."""
        if self.is_itself(out, position):
            return out
        name, shape, dtype = self.outputs[position]
        return as_output(out, dtype, shape, f"out {name!r}")

    def is_itself(self, out: Any, position: int) -> TypeGuard[NDArray]:
        """Return whether *out* can be an output's memory: a plain array of its shape and type.

        That is nearly always given; a closer look (``as_output``) takes 4 us.
        """
        shape, stored = self._plain[position]
        return is_plain_array(out) and out.shape == shape and out.dtype == stored

    def _sharing(self, first: int, second: int) -> TCError:
        names = self.head.outputs
        return BAD_OUT(
            what=f"out {names[second]!r}", why=f"it shares memory with out {names[first]!r}",
            advice="give each output memory of its own",
        )  # fmt: skip

    def delivered(self, given: Mapping[str, Any], views: Sequence[NDArray]) -> Any:
        """Return the outputs, one or a tuple: the caller's own objects, or new arrays."""
        objects = [
            given[name] if name in given else deliver(view, self.library)
            for name, view in zip(self.head.outputs, views, strict=True)
        ]
        return objects[0] if len(objects) == 1 else tuple(objects)

    def shares_memory(self) -> bool:
        """Return whether what is delivered shows what is computed into its memory later."""
        return self.library in _SHARING


def outputs_by_name(head: Head, out: Any) -> dict[str, Any]:
    """Return what *out* gives for outputs of *head*, by their names.

    :raises ShapeError: (TC058) there are too many or too few, or a name is of no output.
    """
    names = head.outputs
    if out is None:
        return {}
    if isinstance(out, Mapping):
        for name in out:
            if name not in names:
                raise _unknown_output(str(name), names)
        return {name: value for name, value in out.items() if value is not None}
    values = list(out) if isinstance(out, (tuple, list)) else [out]
    if len(values) != len(names):
        why = f"it holds {_counted(len(values), 'array')} for {_counted(len(names), 'output')}"
        advice = f"give one array for each of {', '.join(names)}"
        raise BAD_OUT(what="out", why=why, advice=advice)
    return dict(zip(names, values, strict=True))


def _unknown_output(name: str, names: Sequence[str]) -> TCError:
    advice = did_you_mean(name, names) or f"the outputs are {', '.join(names)}"
    return BAD_OUT(what=f"out {name!r}", why="no output has that name", advice=advice)


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
