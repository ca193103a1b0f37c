#!/usr/bin/env bash
# Runs that are stopped, killed or out of disk leave a whole model.
source "$(dirname "$0")/lib.sh" "$@"

# start ARGUMENT...: trains in the background until it is stopped; sets $pid.
start() {
  "$remat" "${train[@]}" --max-steps 1000000 "$@" >stdout 2>stderr &
  pid=$!
}

# wait_for PATTERN FILE: until a line of the file matches.
wait_for() {
  for _ in $(seq 600); do
    grep -qE "$1" "$2" 2>/dev/null && return
    kill -0 "$pid" 2>/dev/null || die 'the run ended by itself'
    sleep 0.1
  done
  die "no '$1' in $2"
}

# ended CODE: waits for the run, which must end with the code.
ended() {
  local got=0
  wait "$pid" 2>/dev/null || got=$?
  [[ $got == "$1" ]] || die "exit code $got instead of $1"
}

# Stopped before the first evaluation: the last model is the only one.
start --output-dir early --eval-steps 1000000
wait_for '"step":2,' early/metrics.jsonl
kill -INT $pid
ended 130
grep -q 'interrupted after step' stderr || die 'not said'
expect 0 '^accuracy' evaluate --model early --test-file test.jsonl

# Stopped after it: the best stays, the last is beside it.
start --output-dir late --eval-steps 3
wait_for 'eval_accuracy' late/metrics.jsonl
sleep 0.3
kill -TERM $pid
ended 130
for model in late late/interrupted; do
  expect 0 '^accuracy' evaluate --model $model --test-file test.jsonl
done

# The run that replaces it replaces all of it, and does so with its first model.
cp -r late before
start --output-dir late --overwrite-output-dir --eval-steps 1000000 \
  --max-seq-length 32
wait_for '"step":2,' late/metrics.jsonl.unsaved
kill -KILL $pid
ended 137
rm late/metrics.jsonl.unsaved
diff -r before late || die 'the other run was changed before a model was saved'
rm -r before
expect 0 'done' "${train[@]}" --output-dir late --overwrite-output-dir \
  --max-steps 2 --max-seq-length 32
grep -q '^max-seq-length = 32' late/run.toml || die 'the other run.toml stays'
[[ $(find late | wc -l) == 6 ]] || die "left: $(ls -A late)"

# Killed before its first model: the directory is free.
start --output-dir none --eval-steps 1000000
wait_for '"step":2,' none/metrics.jsonl
kill -KILL $pid
ended 137
expect 0 'done' "${train[@]}" --output-dir none --max-steps 2

# Killed while it saves again and again: always a whole model.
for delay in 0.05 0.21 0.34 0.48 0.63; do
  rm -rf killed
  start --output-dir killed --eval-steps 1
  wait_for 'eval_accuracy' killed/metrics.jsonl
  sleep $delay
  kill -KILL $pid
  ended 137
  expect 0 '^accuracy' evaluate --model killed --test-file test.jsonl
done
# What it left does not stand in the way.
echo half >killed/model.safetensors.new.tmp-1
expect 0 'done' "${train[@]}" --output-dir killed --overwrite-output-dir \
  --max-steps 2
[[ $(find killed -type f | wc -l) == 5 ]] || die "left: $(ls -A killed)"

# No space for the model: the one before stays, and no half of the new one.
sha256sum killed/model.safetensors >before
no_space() {
  local got=0
  "$@" >stdout 2>stderr || got=$?
  [[ $got == 1 ]] || die "no space: exit code $got instead of 1"
  grep -qE 'cannot write .*model.safetensors.*: (File too large|No space)' \
    stderr || die 'no space: the file or the cause is not named'
}
limited() (
  ulimit -f 64
  exec "$@"
)
no_space limited "$remat" "${train[@]}" --output-dir killed \
  --overwrite-output-dir --max-steps 2
sha256sum --quiet -c before || die 'the model was replaced'
[[ -z $(find killed -name '*.new*') ]] || die 'half a file stays'
expect 0 '^accuracy' evaluate --model killed --test-file test.jsonl

# The same on a full disk, where one can be mounted.
mkdir small
if mount -t tmpfs -o size=96k tmpfs small 2>/dev/null; then
  trap 'umount "$work/small"; rm -rf "$work"' EXIT
  no_space "$remat" "${train[@]}" --output-dir small/out --max-steps 2
  [[ -z $(find small -name '*.new*') ]] || die 'half a file stays'
else
  echo 'no right to mount: the full disk is left out'
fi
echo 'interruption: passed'
