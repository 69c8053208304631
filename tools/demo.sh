#!/usr/bin/env bash
# Sets everything up and lists the devices. Then, on each way to a device: a trained slim ResNet-18 reads handwritten
# digits that it has not seen before, and the full ResNet-18 classifies a photograph.
#
#   bash tools/demo.sh [OPTIONS OF examples/resnet18.py for the photograph, such as --weights FILE]
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
BIN=$ROOT/.venv/bin

bash "$ROOT/tools/setup.sh" --extras demo

# a photograph that scikit-learn ships: a Chinese temple
photo=$("$BIN/python" -c 'import importlib.util, pathlib
print(pathlib.Path(importlib.util.find_spec("sklearn").origin).with_name("datasets") / "images" / "china.jpg")')

printf '\n== dl4all devices\n'
"$BIN/dl4all" devices

IFS=, read -ra devices <"$ROOT/.venv/devices"  # what set-up has made usable
for device in auto "${devices[@]:1}"; do  # all but the CPU, which comes first
    printf '\n== Digits on --device %s\n' "$device"
    "$BIN/python" "$ROOT/examples/resnet18.py" --device "$device"
    printf '\n== A photograph on --device %s: the time only, as no weights for such pictures are shipped\n' "$device"
    "$BIN/python" "$ROOT/examples/resnet18.py" "$photo" --device "$device" "$@"
done

cat <<END

== What to type next
    source .venv/bin/activate                              # then dl4all and python are those of this folder
    dl4all devices                                         # what is here, and which device "auto" takes
    python examples/digits_mlp.py                          # train a small network there
    DL4ALL_DEVICE=${devices[1]:-cpu} python examples/digits_mlp.py        # or on this one
END
