#!/usr/bin/env bash
# Builds the site of the documentation in build/site/html, from docs/ and the docstrings, and checks it: a warning of
# Sphinx is an error, and so is a link that leads nowhere. Read it in a browser, from the folder; no server is needed.
#
#   bash tools/docs.sh
#   bash tools/docs.sh -D html_theme=basic     options go to Sphinx: in this theme, without the tree of all pages beside
#                                              each, it takes two fifths of the time
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
PY=$ROOT/.venv/bin/python
SITE=$ROOT/build/site

cd "$ROOT"
"$PY" -c 'import sphinx' 2>/dev/null || bash tools/setup.sh --extras test
export PYTHONPATH=$ROOT  # this checkout, not another one that is installed
"$PY" -m tools.docs_site.source "$SITE/source"
# What is kept of a run with warnings would hide them from the next, which looks at changed pages only.
trap 'rm -rf "$SITE/doctrees"' ERR
"$PY" -m sphinx -q -W --keep-going -b html -d "$SITE/doctrees" -c tools/docs_site "$@" "$SITE/source" "$SITE/html"
trap - ERR
"$PY" -m tools.docs_site.links "$SITE/html"
echo "The site: $SITE/html/index.html"
