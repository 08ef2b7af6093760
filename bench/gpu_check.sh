#!/bin/bash
# On a machine with a GPU, from the repository root: tests, then the bars.
# A folder given as LLVMLITE_DIR is put on the path, for machines without llvmlite.
set -o pipefail
export PYTHONPATH="$PWD${LLVMLITE_DIR:+:$LLVMLITE_DIR}" PYTHONUNBUFFERED=1
python3 -m pytest -q -x tests/gpu -p no:cacheprovider "$@" && python3 bench/gpu.py
