#!/bin/bash
# On a machine with a GPU, from the repository root: the tests in as many processes as SHARDS says
# (12), then those that need it to themselves; again under the memory checker where MEMCHECK=1; and
# then the bars unless BARS=0.
# A folder given as LLVMLITE_DIR is put on the path, for machines without llvmlite.
export PYTHONPATH="$PWD${LLVMLITE_DIR:+:$LLVMLITE_DIR}" PYTHONUNBUFFERED=1
shards=${SHARDS:-12}
logs=$(mktemp -d)

run_tests() {  # the words before python3
    local failed=0 shard
    for ((shard = 0; shard < shards; shard++)); do
        SVOD_TEST_SHARD=$shard/$shards "$@" python3 -m pytest -q tests/gpu -p no:cacheprovider \
            >"$logs/$shard" 2>&1 &
        pids[shard]=$!
    done
    for ((shard = 0; shard < shards; shard++)); do
        wait "${pids[shard]}" || { failed=1; tail -n 40 "$logs/$shard"; }
    done
    SVOD_TEST_SHARD=alone "$@" python3 -m pytest -q tests/gpu -p no:cacheprovider \
        >"$logs/$shards" 2>&1 || { failed=1; tail -n 40 "$logs/$shards"; }
    for ((shard = 0; shard <= shards; shard++)); do tail -n 1 "$logs/$shard"; done
    grep -h "ERROR SUMMARY" "$logs"/* | sort | uniq -c
    return $failed
}

run_tests env || exit 1
if [ "${MEMCHECK:-0}" = 1 ]; then
    # Errors of calls are left out: tests provoke them.
    run_tests compute-sanitizer --tool memcheck --report-api-errors no --error-exitcode 9 || exit 1
fi
[ "${BARS:-1}" = 0 ] || python3 bench/gpu.py
