"""PyTorch's ``module_db`` on ``dl4all.nn``: results, gradients of inputs and parameters, and buffers after.

    python -m tools.peer_databases.modules
    python -m tools.peer_databases.modules --device vulkan:0 --modules "nn.Conv.*"

PyTorch's module on the CPU is the reference; dl4all's gets its weights. A sample is equal, refused with a
clear error, or wrong.
"""

from __future__ import annotations

import collections
import copy
import dataclasses
import re
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import click
import torch
from torch.testing._internal.common_modules import module_db

import dl4all as dl
from dl4all.errors import Dl4allError
from tools.torch_databases.comparison import Wrong, all_close, compare, described, message
from tools.torch_databases.samples import copied, rounded, tensors, widened

NOT_COMPARED = {
    "num_batches_tracked": "PyTorch counts batches that have no elements, too",
}


@dataclasses.dataclass
class Tally:
    """What became of the samples of one module."""

    name: str
    equal: int = 0
    refused: list[str] = dataclasses.field(default_factory=list)
    wrong: list[str] = dataclasses.field(default_factory=list)

    @property
    def samples(self) -> int:
        return self.equal + len(self.refused) + len(self.wrong)


def entries() -> dict[str, Any]:
    """The modules that take float32 on the CPU, by name."""
    return {info.name: info for info in module_db if torch.float32 in info.supported_dtypes("cpu")}


def samples(info: Any) -> Iterator[tuple[Any, bool]]:
    """The samples of a module, each with whether it is in training."""
    for training in (True, False) if info.train_and_eval_differ else (True,):
        torch.manual_seed(0)
        made = info.module_inputs_func(
            info, device="cpu", dtype=torch.float32, requires_grad=True, training=training
        )
        yield from ((sample, training) for sample in made)


def check(name: str, info: Any, device: str) -> Tally:
    """Compare all samples of a module."""
    tally = Tally(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for sample, training in samples(info):
            _check_sample(tally, info.module_cls, sample, training, device)
    return tally


def _check_sample(tally: Tally, module: Any, sample: Any, training: bool, device: str) -> None:
    made, given = sample.constructor_input, sample.forward_input
    operands = (given.args, dict(given.kwargs))
    torch.manual_seed(0)
    try:
        own = module(*made.args, **made.kwargs).train(training)
        lazy = any(isinstance(one, torch.nn.UninitializedParameter) for one in own.parameters())
        first = own if lazy else copy.deepcopy(own)
        expected_operands = copied(operands)
        expected = _call(own, expected_operands)
    except Exception:  # noqa: BLE001 - a module that PyTorch cannot compute shows nothing
        return
    what = f"{module.__name__}({described(made.args)} {described(made.kwargs)}) of {described(operands)}"
    what += ", training" if training else ""
    try:
        other, moved = _peer(module, made, first, own, device, training), peer_of(operands, device)
        got = other(*moved[0], **moved[1])
        _compare(own, other, (first, operands, expected_operands, moved), expected, got)
    except Wrong as error:
        tally.wrong.append(f"{error} ({what})")
    except (Dl4allError, TypeError, AttributeError, NotImplementedError) as error:
        tally.refused.append(f"{message(error)} ({what})")
    except Exception as error:  # noqa: BLE001 - an error that is not dl4all's is a wrong answer
        tally.wrong.append(f"{message(error)} ({what})")
    else:
        tally.equal += 1


def _peer(module: Any, made: Any, first: Any, own: Any, device: str, training: bool) -> Any:
    """dl4all's module with the weights of PyTorch's."""
    args, kwargs = peer_of((made.args, dict(made.kwargs)), device)
    peer = getattr(dl.nn, module.__name__)(*args, **kwargs).to(device).train(training)
    peer.load_state_dict({key: value.detach().numpy() for key, value in first.state_dict().items()})
    return peer


def peer_of(value: Any, device: str) -> Any:
    """Tensors, dtypes, devices, functions and modules of PyTorch as dl4all's, in any nest."""
    if isinstance(value, torch.Tensor):
        array = value.detach().numpy().copy()
        tensor = dl.tensor(array, device=device)
        return tensor.requires_grad_() if value.requires_grad else tensor
    if isinstance(value, torch.nn.utils.rnn.PackedSequence):
        return dl.nn.utils.rnn.PackedSequence(*(peer_of(part, device) for part in value))
    if isinstance(value, torch.nn.Module):
        return _layer(value, device)
    if isinstance(value, torch.dtype):
        return str(value).removeprefix("torch.")
    if isinstance(value, torch.device):
        return device
    if isinstance(value, dict):
        return {key: device if key == "device" else peer_of(item, device) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(peer_of(item, device) for item in value)
    if callable(value) and hasattr(torch.nn.functional, getattr(value, "__name__", "")):
        return getattr(dl.nn.functional, value.__name__)
    return value


def _layer(layer: Any, device: str) -> Any:
    """A transformer's layer, the only modules that modules of the database are made of."""
    return getattr(dl.nn, type(layer).__name__)(
        layer.linear1.in_features,
        layer.self_attn.num_heads,
        layer.linear1.out_features,
        layer.dropout.p,
        peer_of(layer.activation, device),
        batch_first=layer.self_attn.batch_first,
        norm_first=layer.norm_first,
        bias=layer.linear1.bias is not None,
    )


def _compare(own: Any, other: Any, operands: Any, expected: Any, got: Any) -> None:
    """Results, gradients and buffers.

    Args:
        own, other: PyTorch's module and dl4all's.
        operands: PyTorch's module as it was before its call, the sample's operands, and those that `own` and
            `other` were called with.
        expected, got: what they returned.

    Raises:
        Wrong: they differ.
    """
    first, given, own_given, other_given = operands
    flat, found = tensors(expected), plain(got)
    fixed = all_close(flat, tensors(_call(copy.deepcopy(first), copied(given), seed=1)))
    if not fixed:
        compare(flat, found, "result", elements=False)
        return
    wide = copy.deepcopy(first).double()
    wide_given = widened(given[0]), widened(given[1])
    compare(flat, found, "result", lambda: tensors(_call(wide, wide_given)))
    gradients = _gradients(own, own_given, expected)
    if gradients is not None:
        compare_gradients(gradients, _peer_gradients(other, other_given, got), first, given)
    buffers = dict(own.named_buffers())
    others = {key: plain(value)[0] for key, value in other.named_buffers()}
    if buffers.keys() != others.keys():
        raise Wrong(f"buffers {sorted(buffers)} expected, got {sorted(others)}")
    compare(list(buffers.values()), [others[key] for key in buffers], f"buffers {', '.join(buffers)}")


def compare_gradients(
    expected: dict[str, torch.Tensor], got: dict[str, torch.Tensor], first: Any, given: Any
) -> None:
    """Compare gradients by name.

    Raises:
        Wrong: they differ by more than rounding explains.
    """
    if expected.keys() != got.keys():
        raise Wrong(f"gradients of {sorted(expected)} expected, got {sorted(got)}")

    def precise() -> list[torch.Tensor]:
        module, operands = copy.deepcopy(first).double(), (widened(given[0]), widened(given[1]))
        far = _gradients(module, operands, _call(module, operands)) or {}
        return [far[key] for key in expected]

    def near() -> list[torch.Tensor]:
        module, operands = copy.deepcopy(first), (rounded(given[0]), rounded(given[1]))
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.copy_(rounded(parameter))
        found = _gradients(module, operands, _call(module, operands)) or {}
        return [found[key] for key in expected]

    names = f"gradients of {', '.join(expected)}"
    compare(list(expected.values()), [got[key] for key in expected], names, precise, rounded=near)


def plain(value: Any) -> list[torch.Tensor]:
    """dl4all's tensors in a nest, as PyTorch's."""
    if isinstance(value, dl.Tensor):
        return [torch.from_numpy(value.detach().numpy().copy())]
    if isinstance(value, dict):
        value = list(value.values())
    return [one for item in value for one in plain(item)] if isinstance(value, (list, tuple)) else []


def peers(value: Any) -> list[dl.Tensor]:
    """dl4all's tensors in a nest."""
    if isinstance(value, dl.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [one for item in value for one in peers(item)] if isinstance(value, (list, tuple)) else []


def _call(module: Any, operands: Any, seed: int = 0) -> Any:
    torch.manual_seed(seed)
    return module(*operands[0], **operands[1])


def _weights(outs: list[torch.Tensor]) -> list[torch.Tensor]:
    """A weight for each element of the results whose sum is differentiated."""
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(one.shape, generator=generator).to(one.dtype) for one in outs]


def _gradients(module: Any, operands: Any, result: Any) -> dict[str, torch.Tensor] | None:
    """PyTorch's gradients, by what they belong to; None where there are none."""
    outs = [one for one in tensors(result) if one.requires_grad]
    if not outs:
        return None
    torch.autograd.backward(outs, _weights(outs))
    named = {f"input {at}": one for at, one in enumerate(tensors(operands))}
    named.update(module.named_parameters())
    return {name: one.grad for name, one in named.items() if one.is_leaf and one.grad is not None}


def _peer_gradients(module: Any, operands: Any, result: Any) -> dict[str, torch.Tensor]:
    outs = [one for one in peers(result) if one.requires_grad]
    weights = _weights([plain(one)[0] for one in outs])
    dl.autograd.backward(
        outs, [dl.tensor(w.numpy(), device=one.device) for w, one in zip(weights, outs, strict=True)]
    )
    named: dict[str, Any] = {f"input {at}": one for at, one in enumerate(peers(operands))}
    named.update(module.named_parameters())
    return {name: plain(one.grad)[0] for name, one in named.items() if one.is_leaf and one.grad is not None}


@click.command(help=(__doc__ or "").replace("\n\n    python", "\n\n\b\n    python"))
@click.option("--device", default="cpu", help="dl4all's device.")
@click.option(
    "--modules", "pattern", default=".*", help="Only those whose whole name this expression matches."
)
def main(device: str, pattern: str) -> None:
    torch.set_num_threads(1)
    total: collections.Counter[str] = collections.Counter()
    for name, info in entries().items():
        if not re.fullmatch(pattern, name):
            continue
        tally = check(name, info, device)
        total.update(equal=tally.equal, refused=len(tally.refused), wrong=len(tally.wrong))
        for kind in ("refused", "wrong"):
            for reason in getattr(tally, kind):
                click.echo(f"{kind:8} {name:30} {reason[:400]}")
    click.echo(f"{device}: {dict(total)} of {total.total()} samples")
    sys.exit(bool(total["wrong"]))


if __name__ == "__main__":
    main()
