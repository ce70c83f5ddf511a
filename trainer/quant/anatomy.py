"""Which part of a language model each of its layers is, read from names and classes, for any `nn.Module`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from torch import nn

HEAD_NAMES = ("lm_head", "head")
_ATTENTION = re.compile(r"(.*_)?(attn|attention)")
_GATE = re.compile(r"(.*_)?(gate|router)")
_SHARED_EXPERT = re.compile(r"shared_(expert|mlp).*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where in the model a layer is."""

    head: bool
    """It writes the logits: called `lm_head` or `head`, the model's output embeddings, or tied to an embedding."""
    attention: bool
    """In a module that is called `attn` or `attention` (`self_attn`, ...), or whose class is called `...Attention`."""
    router: bool
    """It weighs experts: in a module whose class is called `...Router`, or a `gate` or `router` beside `experts`."""
    expert: bool
    """One of the experts that a router chooses from: in a module called `experts`."""
    shared_expert: bool
    """An expert that every token passes through: in a module called `shared_expert...` or `shared_mlp`."""
    depth: int | None
    """Index of its decoder layer; None outside of them."""


def places(model: nn.Module, names: Iterable[str]) -> dict[str, Place]:
    """The place of each of the modules that `names` lists, by name."""
    heads = _output_embeddings(model)
    depths = {layer: depth for depth, layer in enumerate(decoder_layers(model))}
    return {name: _place(model, name, heads, depths) for name in names}


def decoder_layers(model: nn.Module) -> list[str]:
    """Names of the decoder layers in order: the longest `nn.ModuleList` of one type of child that lies in no other.

    Lists of linear layers do not count; of two of one length, the first. Empty if there is none.
    """
    outermost: dict[str, nn.ModuleList] = {}
    for name, module in model.named_modules():
        inside = any(name.startswith(f"{outer}." if outer else "") for outer in outermost)
        if isinstance(module, nn.ModuleList) and not inside:
            outermost[name] = module
    lists = {
        name: layers
        for name, layers in outermost.items()
        if len({type(child) for child in layers}) == 1 and not isinstance(layers[0], nn.Linear)
    }
    if not lists:
        return []
    longest = max(lists, key=lambda name: len(lists[name]))
    return [f"{longest}.{child}".lstrip(".") for child, _ in lists[longest].named_children()]


def _place(model: nn.Module, name: str, heads: set[int], depths: dict[str, int]) -> Place:
    """Walks down from the model to the module called `name`."""
    attention = router = expert = shared_expert = False
    depth: int | None = None
    path = name.split(".")
    module = model
    for length, part in enumerate(path, start=1):
        parent, module = module, module.get_submodule(part)
        kind = type(module).__name__
        depth = depths.get(".".join(path[:length]), depth)
        attention |= _ATTENTION.fullmatch(part) is not None or kind.endswith("Attention")
        router |= kind.endswith("Router") or (_GATE.fullmatch(part) is not None and hasattr(parent, "experts"))
        expert |= part == "experts"
        shared_expert |= _SHARED_EXPERT.fullmatch(part) is not None and not router
    head = path[-1] in HEAD_NAMES or bool({id(module), id(getattr(module, "weight", module))} & heads)
    return Place(head=head, attention=attention, router=router, expert=expert, shared_expert=shared_expert, depth=depth)


def _output_embeddings(model: nn.Module) -> set[int]:
    """Identities of the output embeddings, as transformers names them, and of the Parameters of embeddings, to which a
    head is tied."""
    found = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    for module in model.modules():
        get_output = getattr(module, "get_output_embeddings", None)
        output = get_output() if callable(get_output) else None
        if output is not None:
            found.add(id(output))
    return found
