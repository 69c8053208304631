"""The line search of L-BFGS: a step that satisfies the strong Wolfe conditions.

Nocedal and Wright, "Numerical Optimization", algorithms 3.5 and 3.6, with the choices of PyTorch, which are
those of minFunc.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from dl4all.tensor.tensor import Tensor

DECREASE, CURVATURE = 1e-4, 0.9
"""The parts of the decrease that the slope promises, and of the slope, that a step may leave."""

MARGIN = 0.1
"""The share of a bracket at its ends in which a trial makes too little progress."""


class LinePoint(NamedTuple):
    """A point on the line: the step that leads to it, with loss, gradient and slope there."""

    step: float
    loss: float
    gradient: Tensor
    slope: float


Evaluate = Callable[[float], LinePoint]


def strong_wolfe(
    evaluate: Evaluate, start: LinePoint, step: float, size: float, tolerance: float, most: int
) -> tuple[LinePoint, int]:
    """A point that satisfies the conditions, or the best one that was found.

    Args:
        evaluate: gives the point of a step.
        start: the point of step 0.
        step: the first trial.
        size: the largest element of the direction.
        tolerance: brackets whose change of a parameter is below it are not parted further.
        most: evaluations after the first, at the most.

    Returns:
        The point, and the number of evaluations.
    """
    bracket, iteration, done = _first_bracket(evaluate, start, step, most)
    low = _lower(bracket)
    is_stuck = False
    while not done and iteration < most and abs(bracket[1].step - bracket[0].step) * size >= tolerance:
        trial, is_stuck = _trial(bracket, is_stuck)
        point = evaluate(trial)
        iteration += 1
        if _is_too_high(point, start) or point.loss >= bracket[low].loss:
            bracket[1 - low] = point
            low = _lower(bracket)
            continue
        if _is_flat(point, start):
            done = True
        elif point.slope * (bracket[1 - low].step - bracket[low].step) >= 0:
            bracket[1 - low] = bracket[low]
        bracket[low] = point
    return bracket[low], iteration + 1


def _first_bracket(
    evaluate: Evaluate, start: LinePoint, step: float, most: int
) -> tuple[list[LinePoint], int, bool]:
    """Two points between which one lies that satisfies the conditions, or twice the one that does.

    Returns:
        The points, the number of evaluations after the first, and whether the conditions are satisfied.
    """
    before, point = start, evaluate(step)
    for iteration in range(most):
        if _is_too_high(point, start) or (iteration > 1 and point.loss >= before.loss):
            return [before, point], iteration, False
        if _is_flat(point, start):
            return [point, point], iteration, True
        if point.slope >= 0:
            return [before, point], iteration, False
        bounds = point.step + 0.01 * (point.step - before.step), 10 * point.step
        before, point = point, evaluate(_cubic_minimum(before, point, bounds))
    return [start, point], most, False


def _trial(bracket: list[LinePoint], was_stuck: bool) -> tuple[float, bool]:
    """The next step to try between two points, and whether it lies too near to one of them."""
    start, end = sorted(point.step for point in bracket)
    step = _cubic_minimum(bracket[0], bracket[1], (start, end))
    margin = MARGIN * (end - start)
    if min(end - step, step - start) >= margin:
        return step, False
    if was_stuck or step >= end or step <= start:
        return (end - margin if abs(step - end) < abs(step - start) else start + margin), False
    return step, True


def _cubic_minimum(one: LinePoint, other: LinePoint, bounds: tuple[float, float]) -> float:
    """The step to the minimum of the cubic that has the losses and slopes of two points, within bounds."""
    smallest, largest = bounds
    if one.step > other.step:
        one, other = other, one
    mean = one.slope + other.slope
    if one.step != other.step:
        mean -= 3 * (one.loss - other.loss) / (one.step - other.step)
    square = mean**2 - one.slope * other.slope
    root = math.sqrt(square) if square >= 0 else 0.0
    divisor = other.slope - one.slope + 2 * root
    if square < 0 or divisor == 0 or one.step == other.step:
        return (smallest + largest) / 2
    step = other.step - (other.step - one.step) * ((other.slope + root - mean) / divisor)
    return min(max(step, smallest), largest)


def _is_too_high(point: LinePoint, start: LinePoint) -> bool:
    """Whether the loss is above what the slope at the start promises."""
    return point.loss > start.loss + DECREASE * point.step * start.slope


def _is_flat(point: LinePoint, start: LinePoint) -> bool:
    """Whether the slope is small beside that at the start."""
    return abs(point.slope) <= -CURVATURE * start.slope


def _lower(bracket: list[LinePoint]) -> int:
    """Which of two points has the lower loss."""
    return 0 if bracket[0].loss <= bracket[1].loss else 1
