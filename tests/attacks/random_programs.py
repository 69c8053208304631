"""Random programs that a user could have written, as source text for PyTorch and for dl4all.

Each is a function of tensors with views, changes in place, slices, branches and reductions, or a training
step whose parameters take turns. It is made of numbers that Hypothesis draws and shrinks: a choice that
PyTorch does not take at its point is left out, so that each list of choices is a program. The text is the
same for both libraries; ``T`` is the library.

    python -m tests.attacks.random_programs --programs 50000 --ways compiled,dlall,vulkan:0
"""

from __future__ import annotations

import dataclasses
import textwrap
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import click
import numpy as np
import torch

import dl4all as dl

Choice = tuple[int, int, int, int]
"""A kind of statement, and three numbers that say which variables, axes and numbers it takes."""

SHAPES = ((3, 4), (4, 3), (2, 3, 4), (4,), (1, 4), (3, 1), (1,), (5, 5), (2, 1, 3))
CALLS = (0, 1, 0, 0, 1, 1, 0, 1)
"""The flags of the calls of a program: enough for traces, replays and more than one specialisation."""

NUMBERS = (0.5, -1.25, 2.0, 0.0, 1.0)
STEPS = ("", "2", "3")


@dataclasses.dataclass(frozen=True)
class Program:
    """A function ``program(T, flag, x, y)``, or a step ``program(T, flag, x, y, w, v, optimizer)``."""

    source: str
    shapes: tuple[tuple[int, ...], tuple[int, ...]]
    optimizer: str = ""

    @property
    def trains(self) -> bool:
        return bool(self.optimizer)

    def function(self) -> Callable[..., Any]:
        """The program; each call compiles the text anew, so that nobody shares a code object."""
        names: dict[str, Any] = {}
        exec(compile(self.source, f"<{abs(hash(self.source))}>", "exec"), names)
        made: Callable[..., Any] = names["program"]
        return made

    def script(self) -> str:
        """What to run to see it fail: the program, its inputs and its calls, by dl4all."""
        return SCRIPT.format(
            source=textwrap.dedent(self.source), shapes=self.shapes, calls=CALLS, optimizer=self.optimizer
        )


SCRIPT = """
import dl4all as dl, numpy as np
{source}
optimizer = "{optimizer}"
for compiled in (False, True):
    rng = np.random.default_rng(0)
    given = lambda shape: dl.tensor(rng.standard_normal(shape).astype(np.float32))
    trained = []
    if optimizer:
        w, v = (dl.nn.Parameter(given((4,))) for _ in range(2))
        trained = [w, v, eval("dl.optim." + optimizer, {{"dl": dl, "params": [w, v]}})]
    f = dl.compile(program) if compiled else program
    for flag in {calls}:
        x, y = (given(shape) for shape in {shapes})
        print(compiled, f(dl, flag, x, y, *trained), x, y, trained[:2])
"""


class _Draft:
    """A program in the making: its statements, and what PyTorch has in each variable."""

    def __init__(self, shapes: Sequence[tuple[int, ...]]) -> None:
        generator = torch.Generator().manual_seed(0)
        self.tensors = {
            name: torch.randn(shape, generator=generator)
            for name, shape in zip(("x", "y"), shapes, strict=True)
        }
        self.lines: list[str] = []

    def pick(self, number: int, fits: Callable[[torch.Tensor], bool] = lambda t: True) -> str:
        """A variable, the newest ones more often."""
        names = [name for name, tensor in self.tensors.items() if fits(tensor)]
        return names[-1 - min(number % (2 * len(names)), number % len(names))]

    def has_a_layout_of_its_own(self, made: torch.Tensor) -> bool:
        """Whether new memory is not in row-major order, as dl4all's is: other views of it are possible."""
        shared = {tensor.untyped_storage().data_ptr() for tensor in self.tensors.values()}
        return not made.is_contiguous() and made.untyped_storage().data_ptr() not in shared

    def attempt(self, statement: str, target: str = "") -> bool:
        """Add a statement if PyTorch runs it, and keeps numbers that can be compared."""
        names: dict[str, Any] = {"T": torch, **self.tensors}
        kept = {name: tensor.clone() for name, tensor in self.tensors.items()}
        try:
            exec(statement, names)
            made = names.get(target)
            bad = target and (made is None or made.numel() > 400 or self.has_a_layout_of_its_own(made))
        except Exception:  # noqa: BLE001 - whatever PyTorch refuses is no statement of the program
            bad = True
        held = [*self.tensors.values(), names.get(target)] if target else list(self.tensors.values())
        if bad or not all(_is_moderate(one) for one in held if isinstance(one, torch.Tensor)):
            for name, tensor in self.tensors.items():
                if tensor.shape == kept[name].shape and not _repeats(tensor):
                    tensor.copy_(kept[name])
            return False
        self.lines.append(statement)
        if target:
            self.tensors[target] = names[target]
        return True


def _is_moderate(tensor: torch.Tensor) -> bool:
    values = tensor.double()
    return not tensor.numel() or bool(values.isfinite().all() and values.abs().max() < 100)


def _statement(draft: _Draft, choice: Choice) -> None:
    kind, i, j, k = choice
    a, b = draft.pick(i), draft.pick(j)
    ndim = draft.tensors[a].dim()
    axis, other = (k % ndim, (k // 4) % ndim) if ndim else (0, 0)
    number = NUMBERS[k % len(NUMBERS)]
    new = f"a{len(draft.tensors)}"
    makes, changes = _makers(a, b, axis, other, k, number), _changers(a, b, axis, k, number)
    at = kind % (len(makes) + len(changes))
    if at < len(makes):
        draft.attempt(f"{new} = {makes[at]}", new)
    elif not _overlap_partly(draft.tensors[a], draft.tensors[b]):
        draft.attempt(changes[at - len(makes)])


def _overlap_partly(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether a change of one by the other reads what it has written, in an order that is PyTorch's own."""
    shared = one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()
    layouts = [(tensor.shape, tensor.stride(), tensor.storage_offset()) for tensor in (one, other)]
    return shared and layouts[0] != layouts[1]


def _makers(a: str, b: str, axis: int, other: int, k: int, number: float) -> list[str]:
    """Expressions for new variables: views, and results."""
    return [
        f"{a} + {b}", f"{a} * {number}", f"T.tanh({a} - {b})", f"T.relu({a})", f"({a} * {b}).sigmoid()",
        f"T.where({a} > {number}, {a}, {b})", f"{a}.clamp({-abs(number)}, 1.5)", f"T.tanh({a} @ {b})",
        f"{a}.sum({axis})", f"{a}.mean({axis}, keepdim=True)", f"T.softmax({a}, {axis})",
        f"{a}.abs().amax({axis})",
        f"T.cat([{a}, {b}], {axis})", f"T.stack([{a}, {b}]).mean(0)", f"{a}.roll({k % 3}, {axis})",
        f"{a}.flip({axis})", f"{a}.cumsum({axis}) * 0.5", f"{a}.repeat({', '.join(['1'] * (other + 1))})",
        f"{a}.index_select({axis}, {a}.new_tensor([0, 0], dtype=T.int64))",
        # views
        f"{a}.transpose({axis}, {other})", f"{a}.reshape(-1)", f"{a}.flatten({min(axis, other)})",
        f"{a}.select({axis}, {k % 2})", f"{a}[{k % 2}:]", f"{a}[..., ::{k % 2 + 1}]",
        f"{a}.narrow({axis}, 0, 1)",
        f"{a}.unsqueeze({axis})", f"{a}.squeeze()", f"{a}.expand_as({b})", f"{a}.view(-1)", f"{a}.t()",
        f"{a}.reshape({', '.join(map(str, (SHAPES[k % len(SHAPES)])))})", f"{a}.chunk(2, {axis})[0]",
        f"{a}.diagonal()", f"{a}.unfold({axis}, 2, 2)", f"{a}.contiguous()", f"{a}.detach()", f"{a}.clone()",
        f"{a}.movedim({axis}, {other})",
    ]  # fmt: skip


def _changers(a: str, b: str, axis: int, k: int, number: float) -> list[str]:
    """Statements that change a variable's elements, or its shape, in place."""
    return [
        f"{a}.mul_({number})", f"{a}.add_({b})", f"{a}.tanh_()", f"{a}[{k % 2}:] += {number}",
        f"{a}[..., 0] = {number}", f"{a}.copy_({b})", f"{a}.fill_({number})",
        f"{a}.masked_fill_({b} > 0, {number})",
        f"{a} += {b}", f"{a}.clamp_(-1.0, 1.0)", f"{a}[0] = {b}[0]", f"{a}.sub_({b}, alpha={number})",
        f"{a}.t_()", f"{a}.unsqueeze_({axis})", f"{a}.squeeze_()", f"{a}.zero_()", f"{a}.transpose_(0, 1)",
    ]  # fmt: skip


def program(choices: Sequence[Choice], shapes: tuple[int, int], branch: int) -> Program:
    """A function of two tensors.

    Args:
        choices: of its statements.
        shapes: numbers of those of its arguments.
        branch: at which of the statements a branch by ``flag`` begins, to the end.
    """
    given = SHAPES[shapes[0] % len(SHAPES)], SHAPES[shapes[1] % len(SHAPES)]
    draft = _Draft(given)
    for choice in choices:
        _statement(draft, choice)
    lines = draft.lines
    at = branch % (len(lines) + 1)
    straight, branched = (
        lines[:at],
        [line for line in lines[at:] if "=" not in line.split("(")[0].split("[")[0]],
    )
    rest = [line for line in lines[at:] if line not in branched]
    results = ", ".join([*[name for name in draft.tensors if name not in "xy"][-3:], "x"])
    body = [
        *straight,
        "if flag:",
        *(f"    {line}" for line in branched or ["pass"]),
        *rest,
        f"return {results},",
    ]
    source = "def program(T, flag, x, y):\n" + textwrap.indent("\n".join(body), "    ") + "\n"
    return Program(source, given)


OPTIMIZERS = (
    "SGD(params, lr=0.1)", "SGD(params, lr=0.1, momentum=0.9, nesterov=True)", "Adam(params, lr=0.1)",
    "Adam(params, lr=0.1, amsgrad=True)", "AdamW(params, lr=0.1)", "Adamax(params, lr=0.1)",
    "NAdam(params, lr=0.1)", "RAdam(params, lr=0.1)", "Adagrad(params, lr=0.1, lr_decay=0.1)",
    "RMSprop(params, lr=0.05, momentum=0.5, centered=True)", "Rprop(params, lr=0.05)",
    "ASGD(params, lr=0.1, t0=3)", "Adadelta(params, lr=1.0)",
    "Adam(params, lr=0.1, weight_decay=0.1, maximize=True)",
)  # fmt: skip
LOSSES = (
    "((w * x).sum(-1) - 1).square().mean()", "(w.tanh() @ x.reshape(-1, 4).t()).square().mean()",
    "(x * w).relu().sum() * 0.1", "T.softmax(w + x.reshape(-1, 4)[0], 0).square().sum()",
)  # fmt: skip
PAUSES = (
    "if flag:\n    loss = loss + (v * y.reshape(-1)[0]).square().sum()",
    "loss = loss + (v * y.mean()).square().sum()\nv.requires_grad_(not flag)",
    "if flag:\n    loss = loss * 0.5\nloss = loss + v.square().sum() * y.mean()",
    "if flag:\n    loss = loss + v.square().mean()\n    loss = loss + v.sum() * 0.1",
)
EXTRAS = (
    "", "optimizer.param_groups[0]['lr'] = 0.05 + 0.05 * flag", "T.nn.utils.clip_grad_norm_([w, v], 0.5)",
    "with T.no_grad():\n    w.clamp_(-2.0, 2.0)",
)  # fmt: skip


def training(optimizer: int, loss: int, pause: int, extra: int, shape: int) -> Program:
    """A training step of two parameters of which one pauses in some calls."""
    with_four = [given for given in SHAPES if given[-1] == 4]
    given = with_four[shape % len(with_four)], SHAPES[shape % len(SHAPES)]
    after = EXTRAS[extra % len(EXTRAS)]
    body = "\n".join(
        [
            "optimizer.zero_grad()",
            f"loss = {LOSSES[loss % len(LOSSES)]}",
            PAUSES[pause % len(PAUSES)],
            "loss.backward()",
            *([after] if after else []),
            "optimizer.step()",
            "return loss,",
        ]
    )
    source = "def program(T, flag, x, y, w, v, optimizer):\n" + textwrap.indent(body, "    ") + "\n"
    return Program(source, given, OPTIMIZERS[optimizer % len(OPTIMIZERS)])


Outcome = list[Any]
"""For each call the results, the arguments afterwards and the parameters; or the error that ended it."""


def run(program: Program, library: Any, make: Callable[[Any], Any], wrap: Callable[[Any], Any]) -> Outcome:
    """Run all calls of a program, and after each of them write into its first result.

    Args:
        program: what to run.
        library: PyTorch or dl4all.
        make: a tensor of an array.
        wrap: the function as it is called, such as ``dl.compile``.
    """
    rng = np.random.default_rng(0)

    def given(shape: tuple[int, ...]) -> Any:
        return make(rng.standard_normal(shape).astype(np.float32))

    function, trained, outcome = wrap(program.function()), list[Any](), list[Any]()
    if program.trains:
        parameters = [library.nn.Parameter(given((4,))) for _ in range(2)]
        optimizer = eval(f"library.optim.{program.optimizer}", {"library": library, "params": parameters})
        trained = [*parameters, optimizer]
    for flag in CALLS:
        x, y = (given(shape) for shape in program.shapes)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                results = function(library, flag, x, y, *trained)
                shown = [_elements(one) for one in (*results, x, y, *trained[:2])]
                if not program.trains and not _repeats(results[0]):
                    results[0].detach().add_(1.0)  # who shares its memory is seen in what this changes
                    shown += [_elements(one) for one in (*results, x, y)]
            outcome.append(shown)
        except Exception as error:  # noqa: BLE001 - compared with what others raise
            outcome.append(error)
    return outcome


def _repeats(tensor: Any) -> bool:
    return any(size > 1 and step == 0 for size, step in zip(tensor.shape, tensor.stride(), strict=True))


def _elements(tensor: Any) -> Any:
    plain = tensor.detach()
    return (tuple(plain.shape), plain.cpu().numpy().copy())


def compare(program: Program, ways: Sequence[str]) -> str:
    """What differs between PyTorch, dl4all and other ways to run a program; empty where nothing does.

    Args:
        program: what to run.
        ways: ``compiled``, ``dlall``, or the name of a device of dl4all, on which it runs compiled, too.
    """
    own = run(program, torch, torch.from_numpy, lambda function: function)
    eager = run(program, dl, lambda array: dl.tensor(array, device="cpu"), lambda function: function)
    found = difference(own, eager, TOLERANCE, may_refuse=True)
    if found:
        return f"dl4all differs from PyTorch at {found}"
    for way in ways:
        if way == "dlall":
            import dl4all.torch  # noqa: F401

            other = run(program, torch, lambda array: torch.from_numpy(array).to("dlall"), lambda f: f)
            found = difference(own, other, TOLERANCE, may_refuse=True)
        else:
            device = "cpu" if way == "compiled" else way
            with dl.device(device):
                if way != "compiled":
                    plain = run(program, dl, dl.tensor, lambda function: function)
                    found = difference(eager, plain, TOLERANCE, may_refuse=True)
                    if found:
                        return f"{way} differs from the CPU at {found}"
                other = run(program, dl, dl.tensor, dl.compile)
            found = difference(eager, other, TOLERANCE, may_refuse=False)
        if found:
            return f"{way} differs at {found}"
    return ""


TOLERANCE = 2e-4


def difference(one: Outcome, other: Outcome, tolerance: float, *, may_refuse: bool) -> str:
    """The first call in which two runs differ, in words; empty where none does.

    Args:
        one, other: of the same program.
        tolerance: of each element, absolute and relative.
        may_refuse: whether `other` may raise where `one` does not; later calls are not compared then.
    """
    for call, (first, second) in enumerate(zip(one, other, strict=True)):
        if isinstance(first, Exception) or isinstance(second, Exception):
            if isinstance(second, Exception) and (may_refuse or isinstance(first, Exception)):
                return ""  # what follows depends on where it stopped
            return f"call {call}: " + next(repr(one) for one in (second, first) if isinstance(one, Exception))
        if len(first) != len(second):
            return f"call {call}: {len(first)} and {len(second)} tensors"
        for number, ((shape, a), (other_shape, b)) in enumerate(zip(first, second, strict=True)):
            if shape != other_shape:
                return f"call {call}, tensor {number}: shapes {shape} and {other_shape}"
            if not np.allclose(a, b, tolerance, tolerance, equal_nan=True):
                return f"call {call}, tensor {number}:\n{a}\nand\n{b}"
    return ""


def drawn(rng: np.random.Generator) -> Program:
    """A program of random choices."""
    if rng.random() < 0.2:
        return training(*map(int, rng.integers(0, 1000, 5)))
    choices = [
        tuple(map(int, (rng.integers(0, 1000), *rng.integers(0, 64, 3)))) for _ in range(rng.integers(5, 31))
    ]
    return program(choices, tuple(map(int, rng.integers(0, 100, 2))), int(rng.integers(0, 31)))  # type: ignore[arg-type]


@click.command(help=(__doc__ or "").replace("\n\n    python", "\n\n\b\n    python"))
@click.option("--programs", default=1000)
@click.option("--ways", default="compiled", help="compiled, dlall or devices, with commas between them.")
@click.option("--seed", default=0)
def main(programs: int, ways: str, seed: int) -> None:
    differing = 0
    for number in range(programs):
        made = drawn(np.random.default_rng((seed, number)))
        found = compare(made, ways.split(","))
        if found:
            differing += 1
            click.echo(f"program {number}: {found}\n{made.source}{made.shapes} {made.optimizer}\n")
    click.echo(f"{differing} of {programs} differ")
    raise SystemExit(differing > 0)


if __name__ == "__main__":
    main()
