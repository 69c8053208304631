#!/usr/bin/env bash
# Sets everything up and runs every check. With other arguments than --all, only pytest, with these arguments.
#
#   bash tools/test.sh          every op on every device with every layout and dtype, but not in every combination
#   bash tools/test.sh --all    the full product, as every night: hours on two cores
#   bash tools/test.sh [--all] -k relu
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
PY=$ROOT/.venv/bin/python
if [[ ${1-} == --all ]]; then
    export DL4ALL_TEST_FULL=1
    shift
fi
# Some systems switch it off. Tests start some hundred processes, and each would compile the package anew.
unset PYTHONDONTWRITEBYTECODE

bash "$ROOT/tools/setup.sh" --extras test
cd "$ROOT"
# set-up has brought these, so a test that cannot use one fails instead of being skipped
export DL4ALL_TEST_DEVICES=${DL4ALL_TEST_DEVICES-$(<"$ROOT/.venv/devices")}

if (($#)); then exec "$PY" -m pytest "$@"; fi

failed=()
check() {
    local begun=$SECONDS
    printf '\n== %s\n' "$*"
    "$@" || failed+=("$*")
    printf '== took %s s\n' $((SECONDS - begun))
}

check "$PY" -m ruff check
check "$PY" -m ruff format --check
theme=(-D html_theme=basic) # the one that people read takes half a minute more
if [[ ${DL4ALL_TEST_FULL-} == 1 ]]; then theme=(); fi
# beside the first leg, because they keep one core busy while test processes start and end
"$PY" -m mypy >"$ROOT/build/types.log" 2>&1 &
types=$!
bash tools/docs.sh "${theme[@]}" >"$ROOT/build/docs.log" 2>&1 &
docs=$!
beside() {
    local status=0
    wait "$2" || status=$?
    cat "$ROOT/build/$1.log"
    return "$status"
}
# in two processes, as most tests keep one core busy; the rest of a process's share goes to whoever is done.
# BLAS threads of both would wait for each other.
# Few arenas: each of the C library's keeps holes that other threads cannot use.
PYTEST=(env OMP_NUM_THREADS=1 MALLOC_ARENA_MAX=2 "$PY" -m pytest -q -n 2 --dist worksteal)
check "${PYTEST[@]}"
check beside types "$types"
check beside docs "$docs"
# again, comparing the indices that kernels use with what is bound to them; the usual run does so for every op
if [[ ${DL4ALL_TEST_FULL-} == 1 ]]; then
    check env DL4ALL_TEST_INDICES=1 "${PYTEST[@]}" tests/ops tests/nn tests/optim tests/graph tests/pytorch/device \
        -m 'vulkan and not slow' -k 'not kompute'
fi
# What follows looks at commands, not at races within kernels: one thread of llvmpipe's a process is quicker.
export LP_NUM_THREADS=1
# again, with every Vulkan call checked by the validation layers
check env DL4ALL_VALIDATION=1 "${PYTEST[@]}" -m 'vulkan and not slow'
# again, on a device that offers no more than Vulkan requires of every one
check env DL4ALL_LIMITS=minimum "${PYTEST[@]}" tests/ops tests/conformance dl4all/testing tests/models -m 'vulkan and not slow'

echo
if ((${#failed[@]})); then
    printf 'FAILED: %s\n' "${failed[@]}"
    exit 1
fi
echo "All checks passed in $SECONDS s."
