"""The sizes of a transformer: what counts of parameters, FLOPs and bytes are made from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from ppopt.transformer.checked import EstimateError, flag, optional, whole, word

NORMS = ("rms", "layer", "none")
MAX_LAYERS = 4000
"""Most decoder layers: with embedding, head and multi-token prediction a model file holds 4096."""
_FLAGS = ("gated", "tied", "qkv_bias", "output_bias", "ffn_bias", "router_bias", "shared_gate", "sinks", "qk_norm")
_LATENT = ("nope_size", "rope_size", "value_size")


@dataclass(frozen=True)
class Transformer:
    """The sizes of a decoder-only transformer, one field per key of ``[transformer]``.

    ``layers`` decoder layers of width ``hidden`` with ``heads`` query heads and ``kv_heads`` heads of keys and of values
    (default ``heads``) of ``head_size`` (default ``hidden / heads``, which has to be whole); a ``vocabulary``, whose embedding
    and head are one matrix if ``tied``; ``positions`` learned positions. The MLP of a layer is ``ffn`` wide: three matrices if
    ``gated``, else two.

    Mixture of experts: ``experts`` of width ``expert_ffn``, of which a token takes ``experts_per_token``; shared experts that
    every token takes, ``shared_ffn`` wide together, behind a gate of their own with ``shared_gate``. Layers listed in ``dense``
    (counted from 0; a number: the first that many) have a plain MLP of width ``ffn`` instead.

    Latent attention (MLA) has ``kv_latent``, and ``nope_size``, ``rope_size`` and ``value_size`` in place of ``head_size``;
    ``q_latent`` may be absent.

    Layers in ``windowed`` (all by default, where there is a window) attend to the last ``window`` tokens only. ``norm`` is
    ``"rms"`` (one vector), ``"layer"`` (two) or ``"none"`` (no parameters); a layer has ``norms`` of them, 2 or 4. ``mtp``
    modules predict tokens further ahead: each a layer like the last one, a projection from twice the width, and the head once
    more.

    Biases: ``qkv_bias`` of Q, K and V, ``output_bias`` of attention's last matrix, ``ffn_bias`` of MLP and experts,
    ``router_bias``. ``sinks``: a number per head beside the scores. ``qk_norm``: a norm of each head's Q and K.

    Raises:
        EstimateError: a size is missing, out of range, or at odds with another one.
    """

    layers: int
    hidden: int
    heads: int
    vocabulary: int
    ffn: int | None = None
    kv_heads: int | None = None
    head_size: int | None = None
    gated: bool = True
    tied: bool = False
    positions: int = 0
    norm: str = "rms"
    norms: int = 2
    qk_norm: bool = False
    qkv_bias: bool = False
    output_bias: bool = False
    ffn_bias: bool = False
    sinks: bool = False
    window: int | None = None
    windowed: tuple[int, ...] = ()
    experts: int = 0
    experts_per_token: int = 0
    expert_ffn: int | None = None
    shared_ffn: int = 0
    shared_gate: bool = False
    router_bias: bool = False
    dense: tuple[int, ...] = ()
    kv_latent: int | None = None
    q_latent: int | None = None
    nope_size: int | None = None
    rope_size: int | None = None
    value_size: int | None = None
    mtp: int = 0

    if TYPE_CHECKING:

        def __init__(
            self,
            layers: int,
            hidden: int,
            heads: int,
            vocabulary: int,
            ffn: int | None = None,
            kv_heads: int | None = None,
            head_size: int | None = None,
            gated: bool = True,
            tied: bool = False,
            positions: int = 0,
            norm: str = "rms",
            norms: int = 2,
            qk_norm: bool = False,
            qkv_bias: bool = False,
            output_bias: bool = False,
            ffn_bias: bool = False,
            sinks: bool = False,
            window: int | None = None,
            windowed: int | Sequence[int] = (),
            experts: int = 0,
            experts_per_token: int = 0,
            expert_ffn: int | None = None,
            shared_ffn: int = 0,
            shared_gate: bool = False,
            router_bias: bool = False,
            dense: int | Sequence[int] = (),
            kv_latent: int | None = None,
            q_latent: int | None = None,
            nope_size: int | None = None,
            rope_size: int | None = None,
            value_size: int | None = None,
            mtp: int = 0,
        ) -> None: ...

    def __post_init__(self) -> None:
        for name in ("layers", "hidden", "heads", "vocabulary"):
            whole(f"transformer.{name}", getattr(self, name))
        if self.layers > MAX_LAYERS:
            raise EstimateError("transformer.layers", f"at most {MAX_LAYERS} are supported, got {self.layers}")
        for name in ("ffn", "kv_heads", "head_size", "window", "expert_ffn", "kv_latent", "q_latent", *_LATENT):
            optional(f"transformer.{name}", getattr(self, name))
        for name in ("positions", "experts", "experts_per_token", "shared_ffn", "mtp"):
            whole(f"transformer.{name}", getattr(self, name), 0)
        for name in _FLAGS:
            flag(f"transformer.{name}", getattr(self, name))
        word("transformer.norm", self.norm, NORMS)
        if self.norms not in (2, 4) or isinstance(self.norms, bool):
            raise EstimateError("transformer.norms", f"expected 2 or 4 norms a layer, got {self.norms!r}")
        self._set("kv_heads", self.heads if self.kv_heads is None else self.kv_heads)
        self._set("dense", self._numbers("dense", self.dense))
        self._set("windowed", self._numbers("windowed", self.windowed))
        self._check_attention()
        self._check_experts()

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def _numbers(self, name: str, given: Any) -> tuple[int, ...]:
        """Layers that are listed; a number stands for the first that many."""
        key = f"transformer.{name}"
        numbers = range(whole(key, given, 0)) if not isinstance(given, list | tuple) else given
        found = tuple(sorted({whole(key, value, 0) for value in numbers}))
        if found and found[-1] >= self.layers:
            raise EstimateError(key, f"there is no layer {found[-1]}: layers are counted from 0 to {self.layers - 1}")
        return found

    def _check_attention(self) -> None:
        if self.window is None:
            if self.windowed:
                raise EstimateError("transformer.windowed", "these layers need a window; give transformer.window")
        elif not self.windowed:
            self._set("windowed", tuple(range(self.layers)))
        if self.kv_latent is not None:
            for name in _LATENT:
                if getattr(self, name) is None:
                    raise EstimateError(f"transformer.{name}", "missing; latent attention (kv_latent) needs it")
            if self.head_size is not None:
                raise EstimateError("transformer.head_size", "latent attention has nope_size, rope_size and value_size instead")
            return
        for name in ("q_latent", *_LATENT):
            if getattr(self, name) is not None:
                raise EstimateError(f"transformer.{name}", "belongs to latent attention; give transformer.kv_latent too")
        if self.heads % (self.kv_heads or 1):
            raise EstimateError("transformer.kv_heads", f"expected a divisor of {self.heads} heads, got {self.kv_heads}")
        if self.head_size is None:
            if self.hidden % self.heads:
                problem = f"missing; hidden {self.hidden} is no multiple of {self.heads} heads"
                raise EstimateError("transformer.head_size", problem)
            self._set("head_size", self.hidden // self.heads)

    def _check_experts(self) -> None:
        if not self.experts:
            for name in ("experts_per_token", "expert_ffn", "shared_ffn", "shared_gate", "router_bias", "dense"):
                if getattr(self, name):
                    raise EstimateError(f"transformer.{name}", "belongs to a mixture of experts; give transformer.experts too")
        else:
            if not 1 <= self.experts_per_token <= self.experts:
                expected = f"expected a whole number from 1 to {self.experts}"
                raise EstimateError("transformer.experts_per_token", f"{expected}, got {self.experts_per_token}")
            if self.expert_ffn is None:
                raise EstimateError("transformer.expert_ffn", "missing; expected the width of one expert")
        if self.ffn is None and (not self.experts or self.dense):
            raise EstimateError("transformer.ffn", "missing; expected the width of the MLP")

    @property
    def query(self) -> int:
        """Width of Q: heads times their size."""
        if self.kv_latent is not None:
            return self.heads * ((self.nope_size or 0) + (self.rope_size or 0))
        return self.heads * (self.head_size or 0)

    @property
    def scored(self) -> int:
        """Size of a head's Q and K."""
        return self.query // self.heads

    @property
    def valued(self) -> int:
        """Size of a head's V."""
        return (self.value_size if self.kv_latent is not None else self.head_size) or 0

    def has_experts(self, layer: int) -> bool:
        """Whether decoder layer number ``layer`` is a mixture of experts."""
        return self.experts > 0 and layer not in self.dense

    def window_of(self, layer: int) -> int | None:
        """How many tokens decoder layer number ``layer`` attends to at most; ``None``: all before."""
        return self.window if layer in self.windowed else None

    def as_table(self) -> dict[str, Any]:
        """The sizes as ``[transformer]`` has them, without what is at its default."""
        found = {field.name: getattr(self, field.name) for field in fields(self)}
        defaults = {field.name: field.default for field in fields(self)}
        if self.kv_heads == self.heads:
            del found["kv_heads"]
        if len(self.windowed) == self.layers:
            del found["windowed"]
        kept = {name: value for name, value in found.items() if value != defaults[name]}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in kept.items()}
