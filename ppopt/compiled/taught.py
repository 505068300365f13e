"""What numba is taught for loops: to compile them and their parts, and what :func:`~ppopt.compiled.bare` means."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numba.core.cgutils
import numba.core.registry
import numba.core.typing.templates
import numba.extending
from llvmlite import ir

from ppopt.compiled import bare
from ppopt.interrupt import uninterrupted

core: Any = numba.core
extending: Any = numba.extending
types: Any = core.types
cgutils: Any = core.cgutils


OPTIONS = {"nopython": True, "nogil": True}


class _Loop(core.registry.CPUDispatcher):  # type: ignore[misc]
    """No signal interrupts what numba does before the first call: it loads modules of its own, and takes a KeyboardInterrupt in
    the midst of compiling for the end of it."""

    def _compile_for_args(self, *given: Any, **named: Any) -> Any:
        with uninterrupted():
            return super()._compile_for_args(*given, **named)


def compiled_loop(loop: Callable[..., Any]) -> Any:
    """What Python calls for a loop; what is compiled is kept on disk where there is a folder for it."""
    made = _Loop(loop, targetoptions=OPTIONS)
    with suppress(RuntimeError):  # there is none
        made.enable_caching()
    return made


class _Part(core.registry.CPUDispatcher):  # type: ignore[misc]
    """A part is compiled for a number that stands in the source as for any other, not once more."""

    def get_call_template(self, given: Any, named: Any) -> Any:
        return super().get_call_template(tuple(map(types.unliteral, given)), named)


def compiled_part(part: Callable[..., Any]) -> Any:
    """What numba calls for a part of loops."""
    return _Part(part, targetoptions=OPTIONS)


class Addresses(types.Type):  # type: ignore[misc]
    """Where in memory the addresses of the arrays of a named tuple are, and what it has beside these."""

    def __init__(self, named: Any) -> None:
        names = named.instance_class._fields
        self.fields = {name: _bared(field) for name, field in zip(names, named.types, strict=True)}
        super().__init__(f"Addresses({named.instance_class.__name__}, {self.fields})")

    def block(self, context: Any) -> Any:
        """What is there, as LLVM has it."""
        return ir.LiteralStructType([context.get_value_type(field) for field in self.fields.values()])


extending.register_model(Addresses)(extending.models.OpaqueModel)


@extending.infer_getattr
class _Fields(core.typing.templates.AttributeTemplate):  # type: ignore[misc]
    """What its fields are."""

    key = Addresses

    def generic_resolve(self, given: Any, name: str) -> Any:
        return given.fields.get(name)


def _field(context: Any, builder: Any, given: Any, where: Any, name: str) -> Any:
    block = builder.bitcast(where, given.block(context).as_pointer())
    return builder.load(cgutils.gep_inbounds(builder, block, 0, list(given.fields).index(name)))


extending.lower_getattr_generic(Addresses)(_field)


def _bared(given: Any) -> Any:
    """The type of what :func:`bare` makes of something of a type."""
    if isinstance(given, types.Array):
        return types.CPointer(given.dtype)
    if isinstance(given, types.BaseNamedTuple):
        return Addresses(given)
    if isinstance(given, types.BaseTuple):
        return types.BaseTuple.from_types(tuple(map(_bared, given.types)))
    return given


def _bare(context: Any, builder: Any, given: Any, what: Any) -> Any:
    """The code for :func:`bare` of something of a type."""
    if isinstance(given, types.Array):
        return context.make_array(given)(context, builder, what).data
    if not isinstance(given, types.BaseTuple):
        return what
    fields = cgutils.unpack_tuple(builder, what, len(given))
    made = [_bare(context, builder, of, field) for of, field in zip(given.types, fields, strict=True)]
    if not isinstance(given, types.BaseNamedTuple):
        return context.make_tuple(builder, _bared(given), made)
    block = cgutils.alloca_once(builder, _bared(given).block(context))  # until the function that calls it returns
    for place, field in enumerate(made):
        builder.store(field, cgutils.gep_inbounds(builder, block, 0, place))
    return builder.bitcast(block, cgutils.voidptr_t)


extending.type_callable(bare)(lambda context: _bared)
extending.lower_builtin(bare, types.Any)(
    lambda context, builder, signature, given: _bare(context, builder, *signature.args, *given)
)
