#!/bin/bash
# An archive of captures as a dataset, by Slurm:
#
#     slurm.sh OUT CAPTURE...        options of `archive.py list` come first
#
# Waits for two arrays of jobs, one for each step. The same command again does what failed; it ends what an earlier one
# for the same OUT still runs. OUT is a folder that all nodes share. TASKS: tasks at once (default 100). ARRAY: tasks in
# all (default 1000); each does several captures or hours where there are more. SBATCH_* are options of sbatch:
# SBATCH_OUTPUT=/shared/%A_%a.log, where a task dies without a word.
set -euo pipefail
here=$(dirname "$(realpath "$0")")

if [ -n "${SLURM_ARRAY_TASK_ID:-}" ]; then
    # A task of an array: every ARRAY-th line of the list of keys. One that fails does not stop the others.
    status=0
    while read -r key; do
        python3 "$ARCHIVE" "$STEP" "$OUT" "$key" </dev/null || status=$?
    done < <(sed -n "$((SLURM_ARRAY_TASK_ID + 1))~${ARRAY}p" "$OUT/$STEP.keys")
    exit "$status"
fi

# The first word that is no option is OUT.
OUT=$(python3 -c 'import sys; sys.path.insert(0, sys.argv.pop(1)); import archive, argparse, os
parser = argparse.ArgumentParser("slurm.sh", add_help=False); archive.add_settings(parser)
print(os.path.realpath(parser.parse_args().out))' "$here" "$@")
# By default, Slurm refuses the indexes of an array above 1000 (MaxArraySize).
export ARCHIVE="$here/archive.py" OUT STEP ARRAY="${ARRAY:-1000}" SBATCH_OUTPUT="${SBATCH_OUTPUT:-/dev/null}"

# Tasks outlive sbatch: those of an interrupted run would write old results among the new ones.
name="larder-$(cksum <<<"$OUT" | cut -d ' ' -f 1)"
stop() { scancel --name="$name" && while squeue --noheader --name="$name" | grep -q .; do sleep 1; done; }
stop || exit 2
trap 'stop || true' EXIT

python3 "$ARCHIVE" list "$@"
for STEP in extract annotate; do
    [ "$STEP" = extract ] || python3 "$ARCHIVE" plan "$OUT"
    python3 "$ARCHIVE" todo "$OUT" "$STEP" >"$OUT/$STEP.keys"
    count=$(grep -c . "$OUT/$STEP.keys" || true)
    last=$((count < ARRAY ? count - 1 : ARRAY - 1))
    # Failed tasks are results that the next step names.
    [ "$count" = 0 ] || sbatch --wait --job-name="$name" --cpus-per-task=1 --requeue --export=ALL \
        --array="0-$last%${TASKS:-100}" "$(realpath "$0")" || true
done
python3 "$ARCHIVE" finish "$OUT"
