#!/usr/bin/env bash
# Sets everything up, lists the devices and classifies a photograph with ResNet-18 on each way to a device.
#
#   bash tools/demo.sh [OPTIONS OF examples/resnet18.py, such as --weights FILE]
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
BIN=$ROOT/.venv/bin

bash "$ROOT/tools/setup.sh" --extras demo

# a photograph that scikit-learn ships: a Chinese temple
photo=$("$BIN/python" -c 'import importlib.util, pathlib
print(pathlib.Path(importlib.util.find_spec("sklearn").origin).with_name("datasets") / "images" / "china.jpg")')

printf '\n== dl4all devices\n'
"$BIN/dl4all" devices

for device in auto vulkan:0 kompute:0; do
    printf '\n== ResNet-18 on --device %s\n' "$device"
    "$BIN/python" "$ROOT/examples/resnet18.py" "$photo" --device "$device" "$@"
done
