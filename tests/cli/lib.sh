#!/usr/bin/env bash
# For the scripts here: `source lib.sh` with the program as $1. Works in a fresh
# directory that goes at the end; sets $remat, makes config.json, train.jsonl,
# valid.jsonl and test.jsonl.
set -euo pipefail
remat=$(realpath "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
# Threads that wait must not take a core from those that work.
export OMP_WAIT_POLICY=passive
# Nothing that was measured before, nothing left behind.
export XDG_CACHE_HOME=$work/cache

die() {
  echo "FAILED: $*" >&2
  for file in stdout stderr; do
    [[ -f $file ]] && sed "s/^/  $file: /" "$file" >&2
  done
  exit 1
}

# expect CODE PATTERN ARGUMENT...: runs remat; its exit code must be CODE, and
# stdout or stderr must match the extended regular expression.
expect() {
  local code=$1 pattern=$2 got=0
  shift 2
  "$remat" "$@" >stdout 2>stderr </dev/null || got=$?
  [[ $got == "$code" ]] || die "remat $*: exit code $got instead of $code"
  grep -qE -- "$pattern" stdout stderr || die "remat $*: no '$pattern'"
}

# make_texts COUNT SEED [LABEL...]: JSON lines whose words go with the label.
make_texts() {
  local count=$1 seed=$2
  shift 2
  awk -v count="$count" -v seed="$seed" -v labels="$*" 'BEGIN {
    srand(seed)
    classes = split(labels == "" ? "ship tree" : labels, label, " ")
    split("sea sail wave salt harbour anchor", words1, " ")
    split("leaf root wood moss forest branch", words2, " ")
    split("the of and a to in", common, " ")
    for (i = 0; i < count; ++i) {
      class = i % classes + 1
      text = ""
      length_ = 100 + int(rand() * 120)
      for (j = 0; j < length_; ++j) {
        pick = int(rand() * 6) + 1
        word = rand() < 0.5 ? common[pick] \
                            : (class % 2 ? words1[pick] : words2[pick])
        text = text (j ? " " : "") word
      }
      printf "{\"text\": \"%s\", \"label\": \"%s\"}\n", text, label[class]
    }
  }'
}

# losses DIR: the loss of every step, as written.
losses() {
  grep -o '"loss":[^,]*' "$1/metrics.jsonl"
}

cat >config.json <<'CONFIG'
{"model_type": "big_bird", "vocab_size": 300, "hidden_size": 32,
 "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64,
 "max_position_embeddings": 256, "block_size": 16, "num_random_blocks": 2}
CONFIG
make_texts 48 1 >train.jsonl
make_texts 16 2 >valid.jsonl
make_texts 16 3 >test.jsonl
# shellcheck disable=SC2034  # for the scripts
train=(train --model config.json --train-file train.jsonl
  --validation-file valid.jsonl --per-device-train-batch-size 4
  --learning-rate 2e-3 --threads 1)
