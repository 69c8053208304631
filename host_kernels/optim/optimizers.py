"""Steps of optimizers on the host: the rule for each element, for all parameters in one call."""

from __future__ import annotations

from collections.abc import Sequence

from dl4all.host_kernels.elementwise.expressions import print_llvm_statements
from dl4all.host_kernels.lib.tensor_lists import elementwise_lists, list_launch
from dl4all.ops.core.kernels.host_kernel import ArrayLayout, HostLaunch, host_kernel
from dl4all.runtime.cpu.llvm.ir import Code, IrModule, IrValue

Names = tuple[str, ...]


@host_kernel("update")
def prepare_update(
    states: Names,
    constants: Names,
    statements: str,
    reads: Sequence[ArrayLayout],
    writes: Sequence[ArrayLayout],
) -> HostLaunch:
    """The launch of a step.

    Args:
        states, constants, statements: of the rule (:class:`dl4all.optim.step.kernels.UpdateRule`).
        reads: the gradients.
        writes: the parameters, followed by the tensors of the state, each for all parameters.

    Raises:
        NoKernel: see :func:`~dl4all.host_kernels.lib.tensor_lists.list_launch`.
    """
    roles = 1 + len(writes) // len(reads)
    return list_launch(update, (states, constants, statements), roles, [*reads, *writes], len(constants))


def update(states: Names, constants: Names, statements: str, roles: int, dtype: str) -> IrModule:
    """Slots: see :mod:`dl4all.host_kernels.lib.tensor_lists`."""
    written = ("p", *states)

    def rule(code: Code, values: list[IrValue], numbers: list[IrValue]) -> Sequence[IrValue]:
        given = dict(zip(("g", *written, *constants), (*values, *numbers), strict=True))
        now = print_llvm_statements(code, statements, given)
        return [now[name] for name in written]

    return elementwise_lists("update", rule, roles, roles - 1, len(constants), dtype)
