#!/usr/bin/env bash
# train --memory: within the budget, the same losses, or no run at all.
source "$(dirname "$0")/lib.sh" "$@"

# Layers whose values are larger than what the process needs anyway.
cat >wide.json <<'CONFIG'
{"model_type": "big_bird", "vocab_size": 300, "hidden_size": 64,
 "num_hidden_layers": 4, "num_attention_heads": 2, "intermediate_size": 256,
 "max_position_embeddings": 1024, "block_size": 16, "num_random_blocks": 2}
CONFIG
# Each label's texts, several joined into one of some 800 tokens.
lengthen() {
  awk -F'"text": "|", "label": "' '{ key = $3; text[key] = text[key] " " $2
    if (++joined[key] % 6 == 0) {
      printf "{\"text\": \"%s\", \"label\": \"%s\n", text[key], key
      text[key] = ""
    } }'
}
make_texts 192 1 | lengthen >long.jsonl
make_texts 48 2 | lengthen >held.jsonl
[[ $(wc -l <long.jsonl) == 32 ]] || die 'not 32 long texts'

run=(train --model wide.json --train-file long.jsonl --validation-file held.jsonl
  --per-device-train-batch-size 8 --max-steps 4 --eval-steps 2 --threads 1)

# number NAME: of the JSON result.
number() {
  sed -n "s/.*\"$1\":\([0-9]*\).*/\1/p" stdout
}

expect 0 '"memory_bytes":null' "${run[@]}" --output-dir plain --json
unbounded=$(number peak_resident_bytes)

expect 3 '^\[memory\] no plan fits 20.0 MiB: the least is [0-9.]+ MiB \(.*, for batches of 8 x' \
  "${run[@]}" --output-dir small --memory 20MiB
least=$(sed -n 's/.*the least is \([0-9]*\).*/\1/p' stderr)
[[ ! -e small/model.safetensors ]] || die 'a run that cannot be left a model'
((least < unbounded / 1048576)) || die "the least is $least MiB, all $unbounded"

for budget in $((least + 12)) $(((least + unbounded / 1048576) / 2)) 4096; do
  expect 0 "\"memory_bytes\":$((budget << 20))," "${run[@]}" \
    --output-dir "within-$budget" --memory "${budget}MiB" --json
  (($(number peak_resident_bytes) <= budget << 20)) ||
    die "more than $budget MiB"
  (($(number predicted_peak_bytes) <= budget << 20)) ||
    die "predicted more than $budget MiB"
  grep -q '"predicted_step_seconds":[0-9.e-]*,' stdout || die 'no time'
  grep -q '^\[plan\] budget' stderr || die 'no plan is shown'
  diff <(losses plain) <(losses "within-$budget") ||
    die "losses within $budget MiB differ"
  cmp plain/model.safetensors "within-$budget/model.safetensors" ||
    die "the model within $budget MiB differs"
done
# The second run's profile is the first one's.
[[ $(grep -c '^\[profile\] measured before' stderr) == 1 ]] ||
  die 'what was measured before is measured again'
[[ $(find cache/remat/profiles -name '*.json' | wc -l) == 1 ]] ||
  die 'not one profile is kept'
grep -q 'recomputed' stderr && die 'recomputed within 4 GiB'
grep -q '^memory = "4096MiB"' within-4096/run.toml || die 'not in run.toml'

# A profile, and plans from it.
expect 0 '^layer 3 attention .* ms .*MiB' profile --model wide.json --batch-size 8 \
  --output profile.json --threads 1
[[ $(grep -c '^layer' stdout) == 8 ]] || die 'not four layers in halves'
expect 0 '^fits +yes' plan --profile profile.json --memory 4GiB
expect 3 'the least' plan --profile profile.json --memory 20MiB
expect 0 '"stages":\[\{"name":"embeddings",' profile --model wide.json --json \
  --seq-length 300 --repetitions 1
expect 2 '--seq-length is 2000; it must be from 1 to 1,024' \
  profile --model wide.json --seq-length 2000
expect 2 '--batch-size is 0; it must be' profile --model wide.json --batch-size 0
expect 2 '--model is missing' profile

expect 2 '--memory is much; it must be a size such as 900MiB' \
  "${run[@]}" --output-dir bad --memory much
expect 2 '--memory is 0; it must be more than nothing' \
  "${run[@]}" --output-dir bad --memory 0
expect 2 '--memory chooses which layers are recomputed; leave out' \
  "${run[@]}" --output-dir bad --memory 1GiB --gradient-checkpointing
expect 2 '--memory chooses which layers are recomputed; leave out' \
  "${run[@]}" --output-dir bad --memory 1GiB --every-n-layers 2
expect 0 '"memory_bytes":' "${run[@]}" --output-dir cached --max-steps 1 \
  --memory 4096MiB --profile-cache off --json
grep -q '^\[profile\]' stderr && die 'off: neither read nor written'
touch file
expect 0 '^\[profile\] measured; it cannot be kept: .*file' "${run[@]}" \
  --output-dir unkept --max-steps 1 --memory 4096MiB --profile-cache file/dir
expect 2 '--profile-cache is dir; only --memory' \
  "${run[@]}" --output-dir bad --profile-cache dir
expect 2 '--memory needs --allocator caching' \
  "${run[@]}" --output-dir bad --memory 1GiB --allocator system
[[ ! -e bad ]] || die 'a wrong flag made a directory'
