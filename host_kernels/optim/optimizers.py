"""Steps of optimizers on the host: the update of each element, for all parameters in one call.

The values of a rule are the gradient, the parameter and its state, its numbers those of the optimizer's
step. Each rule rounds where the NumPy body does, so that both give the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dl4all.host_kernels.lib.tensor_lists import Rule, elementwise_lists, list_launch
from dl4all.ops.core.kernels.host_kernel import ArrayLayout, HostLaunch, host_kernel
from dl4all.runtime.cpu.llvm.ir import Code, IrModule, IrValue


class Update(NamedTuple):
    """The rule of an optimizer, and how many numbers it takes."""

    rule: Rule
    numbers: int


def root(code: Code, x: IrValue) -> IrValue:
    return code.intrinsic("sqrt", x)


def unless_zero(code: Code, number: IrValue, accepted: IrValue, rejected: IrValue) -> IrValue:
    """One value where a number is not 0, else another."""
    return code.select(number.differs(0.0), accepted, rejected)


def descent(code: Code, g: IrValue, p: IrValue, sign: IrValue, weight_decay: IrValue) -> IrValue:
    """The gradient to descend along. Without decay an infinite parameter does not matter."""
    g = sign * g
    return unless_zero(code, weight_decay, g + weight_decay * p, g)


def sgd(code: Code, values: list[IrValue], numbers: list[IrValue]) -> Sequence[IrValue]:
    g, p, *states = values
    sign, weight_decay, lr, momentum, gradient_weight, nesterov = numbers
    g = descent(code, g, p, sign, weight_decay)
    if not states:
        return (p - lr * g,)
    buffer = states[0] * momentum + gradient_weight * g
    change = unless_zero(code, nesterov, g + momentum * buffer, buffer)
    return p - lr * change, buffer


def adam(code: Code, values: list[IrValue], numbers: list[IrValue]) -> Sequence[IrValue]:
    g, p, mean, square, *largest = values
    sign, weight_decay, shrink, one_minus_beta1, beta2, one_minus_beta2, size, root_correction, eps = numbers
    p = p * shrink
    g = descent(code, g, p, sign, weight_decay)
    mean = mean + (g - mean) * one_minus_beta1
    square = square * beta2 + g * one_minus_beta2 * g
    largest = [code.intrinsic("maximum", old, square) for old in largest]
    divisor = root(code, largest[0] if largest else square) / root_correction + eps
    return p - mean / divisor * size, mean, square, *largest


def rmsprop(code: Code, values: list[IrValue], numbers: list[IrValue]) -> Sequence[IrValue]:
    return _rmsprop(code, values, numbers, centered=False)


def centered_rmsprop(code: Code, values: list[IrValue], numbers: list[IrValue]) -> Sequence[IrValue]:
    return _rmsprop(code, values, numbers, centered=True)


def _rmsprop(
    code: Code, values: list[IrValue], numbers: list[IrValue], *, centered: bool
) -> Sequence[IrValue]:
    g, p, square, *others = values
    sign, weight_decay, lr, alpha, one_minus_alpha, eps, momentum = numbers
    g = descent(code, g, p, sign, weight_decay)
    square = square * alpha + one_minus_alpha * g * g
    states, variance = [square], square
    if centered:
        mean = others.pop(0)
        mean = mean + one_minus_alpha * (g - mean)
        states.append(mean)
        variance = square - mean * mean
    change = g / (root(code, variance) + eps)
    if others:
        change = others[0] * momentum + change
        states.append(change)
    return p - lr * change, *states


def adagrad(code: Code, values: list[IrValue], numbers: list[IrValue]) -> Sequence[IrValue]:
    g, p, total = values
    sign, weight_decay, lr, eps = numbers
    g = descent(code, g, p, sign, weight_decay)
    total = total + g * g
    return p - lr * (g / (root(code, total) + eps)), total


def adadelta(code: Code, values: list[IrValue], numbers: list[IrValue]) -> Sequence[IrValue]:
    g, p, square, changes = values
    sign, weight_decay, lr, rho, one_minus_rho, eps = numbers
    g = descent(code, g, p, sign, weight_decay)
    square = square * rho + one_minus_rho * g * g
    change = root(code, changes + eps) / root(code, square + eps) * g
    return p - lr * change, square, changes * rho + one_minus_rho * change * change


def lion(code: Code, values: list[IrValue], numbers: list[IrValue]) -> Sequence[IrValue]:
    g, p, mean = values
    sign, shrink, lr, beta1, one_minus_beta1, beta2, one_minus_beta2 = numbers
    g = sign * g
    direction = beta1 * mean + one_minus_beta1 * g
    zero_or_nan = code.select(direction.equals(0.0), code.constant(direction.type, 0.0), direction)
    negative = code.select(direction < 0.0, code.constant(direction.type, -1.0), zero_or_nan)
    signs = code.select(direction > 0.0, code.constant(direction.type, 1.0), negative)
    return p * shrink - lr * signs, mean * beta2 + one_minus_beta2 * g


def nadam(code: Code, values: list[IrValue], numbers: list[IrValue]) -> Sequence[IrValue]:
    g, p, mean, square = values
    sign, weight_decay, shrink, one_minus_beta1, beta2, one_minus_beta2, *rest = numbers
    correction2, gradient_size, mean_size, eps = rest
    p = p * shrink
    g = descent(code, g, p, sign, weight_decay)
    mean = mean + (g - mean) * one_minus_beta1
    square = square * beta2 + g * one_minus_beta2 * g
    divisor = root(code, square / correction2) + eps
    return p - g / divisor * gradient_size - mean / divisor * mean_size, mean, square


def radam(code: Code, values: list[IrValue], numbers: list[IrValue]) -> Sequence[IrValue]:
    g, p, mean, square = values
    sign, weight_decay, shrink, one_minus_beta1, beta2, one_minus_beta2, size, rectification, eps = numbers
    p = p * shrink
    g = descent(code, g, p, sign, weight_decay)
    mean = mean + (g - mean) * one_minus_beta1
    square = square * beta2 + g * one_minus_beta2 * g
    step = mean * size
    rectified = step * (rectification / (root(code, square) + eps))
    return p - unless_zero(code, rectification, rectified, step), mean, square


def adamax(code: Code, values: list[IrValue], numbers: list[IrValue]) -> Sequence[IrValue]:
    g, p, mean, largest = values
    sign, weight_decay, one_minus_beta1, beta2, size, eps = numbers
    g = descent(code, g, p, sign, weight_decay)
    mean = mean + (g - mean) * one_minus_beta1
    largest = code.intrinsic("maximum", largest * beta2, code.intrinsic("fabs", g) + eps)
    return p - mean / largest * size, mean, largest


def asgd(code: Code, values: list[IrValue], numbers: list[IrValue]) -> Sequence[IrValue]:
    g, p, average = values
    sign, weight_decay, shrink, size, weight = numbers
    g = descent(code, g, p, sign, weight_decay)
    p = p * shrink - size * g
    return p, code.select(weight.equals(1.0), p, average + (p - average) * weight)


def rprop(code: Code, values: list[IrValue], numbers: list[IrValue]) -> Sequence[IrValue]:
    g, p, before, size = values
    direction, decrease, increase, smallest, largest = numbers
    g = direction * g
    product, zero = g * before, code.constant(g.type, 0.0)
    reverses = product < 0.0
    size = size * code.select(
        product > 0.0, increase, code.select(reverses, decrease, code.constant(g.type, 1.0))
    )
    size = code.select(size < smallest, smallest, code.select(size > largest, largest, size))
    g = code.select(reverses, zero, g)
    change = code.select(g > 0.0, size, code.select(g < 0.0, zero - size, zero))
    return p - change, g, size


def ema(code: Code, values: list[IrValue], numbers: list[IrValue]) -> Sequence[IrValue]:
    """The average follows the parameter, which is in the gradient's place."""
    p, mean = values
    return (mean + numbers[0] * (p - mean),)


UPDATES = {
    "sgd": Update(sgd, 6),
    "adam": Update(adam, 9),
    "rmsprop": Update(rmsprop, 7),
    "centered rmsprop": Update(centered_rmsprop, 7),
    "adagrad": Update(adagrad, 4),
    "adadelta": Update(adadelta, 6),
    "lion": Update(lion, 7),
    "nadam": Update(nadam, 10),
    "radam": Update(radam, 9),
    "adamax": Update(adamax, 6),
    "asgd": Update(asgd, 5),
    "rprop": Update(rprop, 5),
    "ema": Update(ema, 1),
}


@host_kernel("update")
def prepare_update(name: str, reads: Sequence[ArrayLayout], writes: Sequence[ArrayLayout]) -> HostLaunch:
    """The launch of a step.

    Args:
        name: a key of :data:`UPDATES`.
        reads: the gradients.
        writes: the parameters, followed by the tensors of the state, each for all parameters.

    Raises:
        NoKernel: see :func:`~dl4all.host_kernels.lib.tensor_lists.list_launch`.
    """
    roles = 1 + len(writes) // len(reads)
    return list_launch(update, (name,), roles, [*reads, *writes], UPDATES[name].numbers)


def update(name: str, roles: int, dtype: str) -> IrModule:
    """Slots: see :mod:`dl4all.host_kernels.lib.tensor_lists`."""
    found = UPDATES[name]
    return elementwise_lists("update", found.rule, roles, roles - 1, found.numbers, dtype)
