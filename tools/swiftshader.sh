#!/usr/bin/env bash
# Fetches SwiftShader, a second Vulkan driver for the tests, and prints the path of its ICD file for VK_DRIVER_FILES.
#
#   bash tools/swiftshader.sh
#
# Debian has it inside Chromium's package (32 MB). That is unpacked into the cache folder; nothing is installed.
set -euo pipefail

FOLDER=${DL4ALL_CACHE_DIR:-${XDG_CACHE_HOME:-${HOME:?}/.cache}/dl4all}/swiftshader
ICD=$FOLDER/vk_swiftshader_icd.json

if [[ ! -e $ICD ]]; then
    for tool in apt-get dpkg; do
        command -v "$tool" >/dev/null || { echo "swiftshader.sh: needs $tool, so Debian or a system like it" >&2; exit 1; }
    done
    mkdir -p "$(dirname "$FOLDER")"
    work=$(mktemp -d "$FOLDER.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    cd "$work"
    apt-get -qq -o APT::Sandbox::User="$(id -un)" download chromium-common >&2
    dpkg -x chromium-common_*.deb unpacked
    mkdir ready
    mv unpacked/usr/lib/chromium/{libvk_swiftshader.so,vk_swiftshader_icd.json} ready
    mv -T ready "$FOLDER" || [[ -e $ICD ]]  # another run may have been faster
fi
echo "$ICD"
