#!/usr/bin/env bash
# Makes this checkout ready: system packages, .venv, Kompute (up to Python 3.12), dl4all. Run it again at any time: it does what is missing.
#
#   bash tools/setup.sh [--extras demo|test]
#   PYTHON=/path/to/python3.12 bash tools/setup.sh      the interpreter for .venv; otherwise one is looked for
set -euo pipefail

EXTRAS=demo
if [[ ${1:-} == --extras && -n ${2:-} ]]; then
    EXTRAS=$2
elif (($#)); then
    echo "usage: bash tools/setup.sh [--extras demo|test]" >&2
    exit 2
fi

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
VENV=$ROOT/.venv
PY=$VENV/bin/python
STAMP=$VENV/setup-$EXTRAS.stamp
DEVICES=$VENV/devices  # what set-up has made usable, for tools/demo.sh and tools/test.sh
UNFINISHED=$VENV/setup-unfinished  # there while pip writes: after an interruption any package may be half installed
LOG=$ROOT/build/setup.log

cd "$ROOT"
unset PYTHONHOME PYTHONPATH  # either would bring another Python's packages into .venv
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 PIP_USER=0

# ---- progress -------------------------------------------------------------------------------------------------------

ticker=
trap '[[ -z $ticker ]] || kill "$ticker" 2>/dev/null || true' EXIT
trap 'exit 130' INT TERM  # pip turns an interrupt into an ordinary failure, which would go on below

say() { printf '  %-5s %s\n' "$1" "$2"; }

die() {
    printf '\n%s\n' "$1" >&2
    exit 1
}

# step TEXT COMMAND...: the command's output goes to the log, whose end is shown if it fails
step() {
    local text=$1 start=$SECONDS status
    shift
    say .. "$text"
    if [[ -t 1 ]]; then
        while sleep 1; do printf '\r        %d s ' $((SECONDS - start)); done &
        ticker=$!
    fi
    printf '\n=== %s: %s\n' "$text" "$*" >>"$LOG"
    set +e  # `"$@" || ...` would also switch off `set -e` inside the command when it is one of the functions below
    (set -e; "$@") >>"$LOG" 2>&1 </dev/null
    status=$?
    set -e
    if [[ -n $ticker ]]; then
        kill "$ticker" 2>/dev/null || true
        wait "$ticker" 2>/dev/null || true
        ticker=
        printf '\r\033[K'
    fi
    if ((status)); then
        ((status > 128)) || rm -f "$UNFINISHED"  # pip failed and cleared up; it was not killed
        say FAIL "$text ($((SECONDS - start)) s)"
        tail -n 25 "$LOG" | sed 's/^/    | /'
        die "Set-up stopped there. The whole log: $LOG"
    fi
    say ok "$text ($((SECONDS - start)) s)"
}

# ---- Python ---------------------------------------------------------------------------------------------------------

# usable NAME [MINOR]: prints the installed interpreter behind a name (a shim, an activated .venv) if it runs and is
# Python 3.10 to 3.MINOR.
usable() {
    "$1" -c 'import sys
fits = sys.implementation.name == "cpython" and (3, 10) <= sys.version_info[:2] <= (3, int(sys.argv[1]))
print(sys._base_executable) if fits else sys.exit(1)' "${2:-13}" 2>/dev/null
}

# Kompute pins NumPy below 2, which has no wheels for Python 3.13 and does not build on it.
LATEST_WITH_KOMPUTE=12
has_kompute() { usable "$1" "$LATEST_WITH_KOMPUTE" >/dev/null; }

# Prints what tells one installed Python from another.
identity() { "$1" -c 'import sys; print(sys.base_prefix, sys.version)' 2>/dev/null; }

# Prints the names of all Pythons that there may be.
pythons() {
    local name
    echo /usr/bin/python3
    for name in python3.13 python3.12 python3.11 python3.10; do type -aP "$name" || true; done
    compgen -G "${PYENV_ROOT:-${HOME:-}/.pyenv}/versions/3.1[0-3].*/bin/python3" || true
    compgen -G "${XDG_DATA_HOME:-${HOME:-}/.local/share}/uv/python/cpython-3.1[0-3].*/bin/python3" || true
    type -aP python3 || true
}

find_python() {
    local name latest
    if [[ -n ${PYTHON:-} ]]; then
        usable "$PYTHON" || true
        return
    fi
    for latest in "$LATEST_WITH_KOMPUTE" 13; do  # an older Python that can have Kompute goes before a newer one
        while read -r name; do
            if usable "$name" "$latest"; then return; fi
        done < <(pythons)
    done
}

# False where .venv is missing, half made, has lost its interpreter, or is not made from PYTHON.
venv_is_good() {
    [[ ! -e $UNFINISHED ]] || return 1
    usable "$PY" >/dev/null && "$PY" -c 'import pip' 2>/dev/null || return 1
    [[ -z ${PYTHON:-} || $(identity "$PYTHON") == "$(identity "$PY")" ]]
}

# A .venv needs ensurepip and building Kompute needs Python.h; Debian and Ubuntu package both apart from Python.
python_is_complete() {
    "$BASE_PYTHON" -c 'import ensurepip, pathlib, sysconfig
pathlib.Path(sysconfig.get_path("include"), "Python.h").stat()' 2>/dev/null
}

# ---- system packages ------------------------------------------------------------------------------------------------

# need    | what it is                                  | apt | dnf | pacman | brew
PACKAGES='
python    | Python 3.10 to 3.13 with venv and Python.h  | python3 python3-venv python3-dev | python3.12 python3.12-devel | uv | python@3.12
loader    | the Vulkan loader, libvulkan                | libvulkan1 | vulkan-loader | vulkan-icd-loader | vulkan-loader
driver    | a Vulkan driver                             | mesa-vulkan-drivers | mesa-vulkan-drivers | vulkan-swrast | molten-vk
glsl      | a GLSL compiler, shaderc or glslang         | glslc | glslc | shaderc | shaderc
cmake     | CMake, for Kompute                          | cmake | cmake | cmake | cmake
make      | make, for Kompute                           | make | make | make | make
cxx       | a C++ compiler, for Kompute                 | g++ | gcc-c++ | gcc | gcc
headers   | the Vulkan headers, for Kompute             | libvulkan-dev | vulkan-headers vulkan-loader-devel | vulkan-headers | vulkan-headers
fmt       | the fmt library, for Kompute                | libfmt-dev | fmt-devel | fmt | fmt
layers    | the Vulkan validation layers, for the tests | vulkan-validationlayers | vulkan-validation-layers | vulkan-validation-layers | vulkan-validationlayers
'

# column N NEED...: that column of the table for these needs (2: what it is, 3: apt, 4: dnf, 5: pacman, 6: brew)
column() {
    local n=$1
    shift
    awk -F' *[|] *' -v n="$n" -v needs=" $* " 'index(needs, " " $1 " ") && $1 != "" { print $n }' <<<"$PACKAGES"
}

can_load() { "${BASE_PYTHON:-python3}" -c 'import ctypes, sys; ctypes.CDLL(sys.argv[1])' "$1" 2>/dev/null; }
can_include() { c++ -E -x c++ - <<<"#include <$1>" >/dev/null 2>&1; }

# has_file PATTERN: one of the folders where a Vulkan loader looks has such a file
has_file() {
    local dir
    for dir in /usr/share /usr/local/share /etc /usr/local/etc /opt/homebrew/share /opt/homebrew/etc "${HOME:-}/.local/share"; do
        if compgen -G "$dir/vulkan/$1" >/dev/null; then return; fi
    done
    return 1
}

# Looks at what is really there, whoever installed it.
is_there() {
    case $1 in
        python) [[ -n $BASE_PYTHON ]] && python_is_complete ;;
        loader) can_load libvulkan.so.1 || can_load libvulkan.1.dylib ;;
        driver) [[ -n ${VK_DRIVER_FILES:-}${VK_ICD_FILENAMES:-} ]] || has_file 'icd.d/*.json' ;;
        glsl) command -v glslc || command -v glslangValidator || can_load libshaderc.so.1 || can_load libshaderc_shared.so.1 ;;
        cmake | make) command -v "$1" ;;
        cxx) command -v c++ ;;
        headers) [[ -n ${VULKAN_SDK:-} ]] || { can_include vulkan/vulkan.hpp && [[ $(c++ -print-file-name=libvulkan.so) == /* ]]; } ;;
        fmt) can_include fmt/core.h ;;
        layers) [[ -n ${VULKAN_SDK:-}${VK_LAYER_PATH:-} ]] || has_file 'explicit_layer.d/VkLayer_khronos_validation.json' ;;
    esac >/dev/null
}

# Prints the needs whose apt packages are not installed.
apt_missing() {
    local need package installed
    # glslang-tools stands in for glslc: Ubuntu 22.04 has no shaderc
    # shellcheck disable=SC2046  # package names hold no spaces
    installed=" $(dpkg-query -W -f='${Package} ${db:Status-Status}\n' $(column 3 "${needs[@]}") glslang-tools 2>/dev/null |
        awk '$2 == "installed" { printf "%s ", $1 }') "
    for need in "${needs[@]}"; do
        for package in $(column 3 "$need"); do
            [[ $installed == *" $package "* ]] && continue
            [[ $need == glsl && $installed == *" glslang-tools "* ]] && continue
            echo "$need"
            break
        done
    done
}

apt_packages() {
    local packages
    packages=" $(column 3 "$@" | tr '\n' ' ') "
    if [[ -z $(apt-cache madison glslc 2>/dev/null) && -n $(apt-cache madison glslang-tools 2>/dev/null) ]]; then
        packages=${packages/ glslc / glslang-tools }
    fi
    case $BASE_PYTHON in
        # a second Python, such as the deadsnakes archive's python3.12, has packages of its own
        /usr/bin/python3.*) packages=${packages/ python3 python3-venv python3-dev / ${BASE_PYTHON##*/}-venv ${BASE_PYTHON##*/}-dev } ;;
    esac
    xargs <<<"$packages"
}

apt_get() { "${as_root[@]}" DEBIAN_FRONTEND=noninteractive apt-get -y -o DPkg::Lock::Timeout=300 "$@"; }

apt_install() {
    # Old lists would install old drivers: Ubuntu 22.04 before its updates gets large matrix products wrong on llvmpipe.
    apt_get update || echo "apt-get update failed; going on with the lists that are there"
    # shellcheck disable=SC2046  # package names hold no spaces
    apt_get install --no-install-recommends $(apt_packages "$@")
}

# Sets as_root to the words before a command that needs root; false where that is not possible without asking.
can_be_root() {
    as_root=(env)
    ((EUID == 0)) && return
    as_root=(sudo env)
    sudo -n true 2>/dev/null
}

may_ask_for_root() {
    [[ -t 0 ]] && command -v sudo >/dev/null || return 1
    echo "  Your password is needed to install: $(apt_packages "$@")"
    sudo -v
}

ask_to_install() {
    local apt hint=""
    if command -v apt-cache >/dev/null; then apt=$(apt_packages "$@"); else apt=$(column 3 "$@" | xargs); fi
    [[ " $* " != *" python "* ]] ||
        hint=$'\n  Any system, if its Python is another one:  uv python install 3.12  (or name yours: PYTHON=/path/to/python3.12)'
    die "Set-up needs these, and cannot install them here (that takes root or sudo, and apt):
$(column 2 "$@" | sed 's/^/  - /')

Install them by hand:
  Debian, Ubuntu:  sudo apt-get install --no-install-recommends $apt
  Fedora:          sudo dnf install $(column 4 "$@" | xargs)
  Arch:            sudo pacman -S $(column 5 "$@" | xargs)
  macOS:           brew install $(column 6 "$@" | xargs)$hint
then run the same command again."
}

can_install() { command -v apt-get >/dev/null && can_be_root; }

system_packages() {
    local needs=(loader driver glsl)
    [[ $EXTRAS != *test* ]] || needs+=(layers)
    if [[ -z $BASE_PYTHON ]] && can_install; then provide; fi  # which Python comes says whether Kompute can be built
    if [[ -z $BASE_PYTHON ]] || has_kompute "$BASE_PYTHON"; then needs+=(cmake make cxx headers fmt); fi
    provide "${needs[@]}"
}

# provide NEED...: installs those that are missing, and Python if that is
provide() {
    local need needs=("$@") missing=() absent=()
    if command -v dpkg-query >/dev/null; then
        read -ra missing -d '' <<<"$(apt_missing)" || true
    else
        missing=("${needs[@]}")
    fi
    is_there python || missing+=(python)
    ((${#missing[@]})) || return 0

    if ! can_install; then
        for need in "${missing[@]}"; do  # it may be there without a package: built by hand, from conda, from Homebrew
            is_there "$need" || absent+=("$need")
        done
        ((${#absent[@]})) || return 0
        missing=("${absent[@]}")
        { command -v apt-get >/dev/null && may_ask_for_root "${missing[@]}"; } || ask_to_install "${missing[@]}"
    fi
    step "System packages: $(apt_packages "${missing[@]}")" apt_install "${missing[@]}"
    [[ -n $BASE_PYTHON ]] || BASE_PYTHON=$(find_python)
    is_there python || ask_to_install python
}

# ---- .venv ----------------------------------------------------------------------------------------------------------

make_venv() {
    rm -rf "$VENV"
    "$BASE_PYTHON" -m venv "$VENV"
}

# Imports it: one that was built against other libraries, or another NumPy, is installed and does not load.
kompute_works() {
    "$PY" -c 'import importlib.metadata as m, sys, kp; sys.exit("kp==" + m.version("kp") != sys.argv[1])' "$1"
} 2>/dev/null

# Kompute comes as source only, and its build needs help.
install_kompute() {
    local jobs free_gb path
    jobs=$(getconf _NPROCESSORS_ONLN)
    free_gb=$(awk '/^MemAvailable/ { print int($2 / 1000000) }' /proc/meminfo 2>/dev/null || echo "$jobs")
    ((jobs <= free_gb)) || jobs=$free_gb  # a compiler takes up to 1 GB
    ((jobs <= 9)) || jobs=9               # its setup.py makes `make -j 1 2` of 12
    ((jobs >= 1)) || jobs=1
    # CMake takes the first `python` on PATH, which must be ours and not a version manager's shim
    path=$VENV/bin:$(tr : '\n' <<<"$PATH" | grep -v '/shims/*$' | paste -sd : -)

    # The build tools are chosen here, not by an isolated build: setup.py imports distutils, which only setuptools
    # still has on Python 3.12, and the distributions' pybind11 can be older than their users' Python.
    "$PY" -m pip install --upgrade 'pip>=24' 'setuptools>=77,<81' wheel 'pybind11>=2.13,<3'
    env VIRTUAL_ENV="$VENV" PATH="$path" pybind11_DIR="$("$PY" -m pybind11 --cmakedir)" \
        KOMPUTE_PYTHON_NUM_PARALLEL_THREADS="$jobs" \
        KOMPUTE_OPT_INSTALL=OFF KOMPUTE_OPT_USE_BUILT_IN_FMT=OFF \
        KOMPUTE_OPT_USE_BUILT_IN_PYBIND11=OFF KOMPUTE_OPT_USE_BUILT_IN_VULKAN_HEADER=OFF \
        "$PY" -m pip install --verbose --no-build-isolation "$@"
}

install_dl4all() { "$PY" -m pip install --editable ".[$1]"; }

compile_shaders() {
    "$PY" -c 'from dl4all.ops import all_shaders; from dl4all.runtime import spirv; spirv.compile_missing(all_shaders())'
}

# ---- the steps ------------------------------------------------------------------------------------------------------

mkdir -p build
if command -v flock >/dev/null; then  # two set-ups at once would undo each other
    exec 9>build/setup.lock
    flock -n 9 || { say .. "waiting for another set-up of this checkout" && flock 9; }
fi
echo "dl4all set-up ($EXTRAS)"
: >"$LOG"

if venv_is_good; then
    BASE_PYTHON=$PY
else
    BASE_PYTHON=$(find_python)
    [[ -n $BASE_PYTHON || -z ${PYTHON:-} ]] || die "PYTHON=$PYTHON is no CPython 3.10 to 3.13 that runs."
fi
system_packages

key=$({ cat pyproject.toml tools/setup.sh && identity "$BASE_PYTHON" && echo "$ROOT $EXTRAS"; } | cksum)
if [[ $BASE_PYTHON == "$PY" && -e $STAMP && $(<"$STAMP") == "$key" ]]; then
    say ok "Nothing to do"
else
    rm -f "$STAMP"
    [[ $BASE_PYTHON == "$PY" ]] || step ".venv, made anew with $BASE_PYTHON" make_venv
    : >"$UNFINISHED"
    devices=cpu,vulkan:0
    extras=$EXTRAS
    if has_kompute "$PY"; then
        devices+=,kompute:0
        extras+=,kompute
        kompute=$(grep -o 'kp==[0-9.]*' pyproject.toml)
        if ! kompute_works "$kompute"; then
            step "Kompute (built from source once: a minute or more)" install_kompute "$kompute"
            # pip's cache can hold one that was built before the system was upgraded
            kompute_works "$kompute" ||
                step "Kompute again, without pip's cache" install_kompute --no-cache-dir --force-reinstall --no-deps "$kompute"
        fi
    else
        say .. "Kompute is left out: it needs NumPy 1, which Python 3.13 has not. vulkan:0 runs the same shaders."
    fi
    step "dl4all and what it needs" install_dl4all "$extras"
    step "Shaders, compiled into your cache folder where there is glslc" compile_shaders
    echo "$devices" >"$DEVICES"
    rm -f "$UNFINISHED"
    echo "$key" >"$STAMP"
fi
echo "Set-up took $SECONDS s"
