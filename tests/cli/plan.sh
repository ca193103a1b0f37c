#!/usr/bin/env bash
# remat plan: for models that are not trained on machines that are not here.
source "$(dirname "$0")/lib.sh" "$@"

cat >bert.json <<'CONFIG'
{"model_type": "bert", "vocab_size": 30522, "hidden_size": 768,
 "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072,
 "hidden_act": "gelu", "max_position_embeddings": 512, "type_vocab_size": 2}
CONFIG
mkdir long
cat >long/config.json <<'CONFIG'
{"model_type": "big_bird", "vocab_size": 50358, "hidden_size": 768,
 "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072,
 "max_position_embeddings": 131072, "block_size": 64, "num_random_blocks": 3}
CONFIG
long=(plan --model long --seq-length 131072 --attention fused
  --device h100-80g)

# number NAME: of the JSON object on the last standard output.
number() {
  grep -oE "\"$1\":-?[0-9.e+-]+" stdout | head -1 | cut -d: -f2
}

# holds EXPRESSION: of numbers, by awk.
holds() {
  awk "BEGIN { exit !($1) }" || die "not so: $1"
}

expect 0 'Examples:' plan --help
expect 0 '--memory SIZE' plan --help
expect 0 'plan +tell whether' --help
for command in train evaluate predict profile plan; do
  [[ -z $("$remat" $command --help | grep -E '.{81}| $') ]] ||
    die "the help of $command is wider than 80 columns, or ends in blanks"
done

# A model of known size, and the sums of what is always there.
expect 0 '^model +bert, 12 layers x 768, 109\.5 M parameters' \
  plan --model bert.json --seq-length 512 --batch-size 8 --device l4
grep -qE '^fits +yes: ' stdout || die 'fits not said'
grep -q 'This is an estimate' stdout || die 'not called an estimate'
expect 0 '"parameters":109482240,' \
  plan --model bert.json --seq-length 512 --device l4 --head none --json
[[ $(wc -l <stdout) == 1 ]] || die 'more than one line'
[[ $(number fixed_bytes) == $((16 * 109482240)) ]] || die 'not 16 bytes each'

# A long text: fits with recomputation, and the numbers hang together.
expect 0 '^step .* of it extra; keeping everything needs ' \
  "${long[@]}" --memory 60GiB
grep -qE '^layer [0-9]+.* runs again$' stdout || die 'nothing runs again'
expect 0 '"fits":true,"budget_bytes":64424509440,' "${long[@]}" --memory 60GiB \
  --json --output plan.json --output-chain chain.json
peak=$(number peak_bytes)
seconds=$(number seconds)
extra=$(number extra_seconds)
kept=$(number keep_all_seconds)
least=$(number least_bytes)
holds "$peak <= 64424509440 && $peak > 60000000000"
holds "$(number keep_all_bytes) > 64424509440 && $least < $peak"
holds "$extra > 0 && $seconds - $extra - $kept < 1e-9 * $kept"
holds "$extra < 0.2 * $kept"
for field in peak_at peak_use optimality_gap stages estimate assumptions \
  padded_length recomputed; do
  grep -q "\"$field\":" stdout || die "no $field"
done
[[ $(grep -o '"recomputed":' stdout | wc -l) == 13 ]] || die 'not 13 stages'

# The files say the same, and another process plans the chain the same way.
grep -q '"format": "remat-schedule"' plan.json || die 'no schedule'
expect 0 '"fits":true' plan --chain chain.json --memory 60GiB --json \
  --output again.json
[[ $(number peak_bytes) == "$peak" ]] || die 'another peak'
grep -q '"estimate":null' stdout || die 'called an estimate'
cmp plan.json again.json || die 'another plan'
expect 0 '^chain +13 stages; ' plan --profile chain.json --memory 60GiB
grep -q 'estimate' stdout && die 'a chain file is no estimate'

# A byte too little: the least budget is exact, and nothing is written.
expect 3 "no plan fits .*: the least is .* \($least bytes; .*gradients" \
  "${long[@]}" --memory $((least - 1)) --output none.json
grep -qE 'Smaller: --dtype bfloat16 \(least .*--seq-length 65536 \(least' \
  stderr || die 'no way out'
[[ ! -s stdout && ! -e none.json ]] || die 'an answer all the same'
expect 0 'fits +yes' "${long[@]}" --memory "$least"
expect 3 '"fits":false,.*"smaller":\[\{"flags":"--dtype bfloat16"' \
  "${long[@]}" --memory 8GiB --json
[[ $(number least_bytes) == "$least" ]] || die 'another least budget'
expect 3 'no plan of every-n fits .*' "${long[@]}" --memory "$least" \
  --solver every-n
grep -q -- '--solver optimal has one from' stderr || die 'no way out'
expect 3 'no plan fits 1\.00 KiB' plan --chain chain.json --memory 1KiB

# What else is told.
expect 0 '^peak +fixed .*saved .*workspace' "${long[@]}" --memory 60GiB --explain
grep -qE '^bound +no plan at all has less than' stdout || die 'no bound'
grep -qE '^keep-all +needs 78\.[0-9] GiB' stdout || die 'no other solvers'
grep -q 'Fa0 ' stdout || die 'no schedule'
expect 0 '^memory +step +extra' "${long[@]}" --memory 60GiB --frontier
expect 0 '"frontier":\[\{"budget_bytes":' "${long[@]}" --frontier --json
expect 0 '^h100-80g +74\.5 GiB +3350 GB/s +67 T' plan --list-devices
expect 0 '^\[\{"format":"remat-device"' plan --list-devices --json
expect 0 '^note +the budget, 100 GiB, is more than' "${long[@]}" --memory 100GiB

# Of a long chain of unequal stages each run of one fate is a row.
awk 'BEGIN {
  printf "{\"format\": \"remat-chain\", \"version\": 1, \"input_bytes\": 10,"
  printf " \"fixed_bytes\": 0, \"loss\": {}, \"stages\": ["
  for (i = 0; i < 60; ++i) {
    printf "%s{\"name\": \"block %d\", \"forward_seconds\": %d,", \
      i ? "," : "", i, i % 7 + 1
    printf " \"backward_seconds\": 2, \"output_bytes\": 10,"
    printf " \"saved_bytes\": %d}", 30 + i % 5
  }
  print "]}"
}' >sixty.json
expect 0 '^block 0-59 +60 +2[0-9]{2} s +120 s +1\.[0-9]+ KiB  kept$' \
  plan --chain sixty.json --memory 1MiB
expect 0 'what becomes of it \(sums\)' plan --chain sixty.json --memory 1500

# A fast link makes waiting on the host worth it.
"$remat" plan --list-devices --json | grep -o '{[^}]*}[^}]*}' | head -1 |
  sed 's/link_bytes_per_second":[0-9.]*/link_bytes_per_second":3e13/' >link.json
expect 0 'kept: host$' plan --model long --seq-length 131072 \
  --attention fused --device link.json --memory 30GiB --offload host

# Names as in remat train, a TOML file, and a device file.
cat >plan.toml <<'TOML'
model = "bert.json"
max-seq-length = 128
per_device_train_batch_size = 4
device = "card.json"
TOML
"$remat" plan --list-devices --json | grep -o '{[^}]*}[^}]*}' | head -1 |
  sed 's/"h100-80g"/"card"/; s/80000000000/4000000000/' >card.json
expect 0 '^device +card, 3\.73 GiB' plan --config plan.toml
expect 0 '^batch +4 x 128 tokens in bfloat16' plan --config plan.toml --bf16
expect 0 '^batch +4 x 64 tokens in float16' plan --config plan.toml \
  --seq-length=64 --fp16

# The machine that is here.
expect 0 '^device +this-machine, ' plan --model config.json --seq-length 256 \
  --device this-machine

# What a user can get wrong; tests/estimate has more of it.
refused() {
  local pattern=$1
  shift
  expect 2 "$pattern" plan "$@"
  [[ ! -s stdout ]] || die "remat plan $*: an answer all the same"
}
refused '--model is missing: a Hugging Face config.json'
refused '--seq-length is missing' --model bert.json --device l4
refused '--device is missing: .*--list-devices' --model bert.json --seq-length 1
refused '--memory is missing' --chain chain.json
refused '--chain and --model exclude' --chain chain.json --model bert.json
refused '--dtype belongs to --model' --chain chain.json --dtype bf16
refused 'nowhere.json: No such file' --model nowhere.json --seq-length 1 \
  --device l4
refused 'nowhere.json: No such file' --model bert.json --seq-length 1 \
  --device nowhere.json
while read -r flag value pattern; do
  refused "--$flag (is \"?$value)?.*$pattern" --model bert.json --seq-length 128 \
    --device l4 "--$flag" "$value"
done <<'FLAGS'
seq-length 513 the model has positions for 512 tokens
seq-length many a whole number
batch-size 0 it must be from 1 to 1,048,576
dtype bfloat61 did you mean bfloat16\?
attention fussed did you mean fused\?
offload disk l4 has no disk rate; give a device file
device h100 did you mean h100-80g\? Known are h100-80g, .*this-machine
memory 4Gib a size such as 900MiB
memory 0 a size such as 900MiB
solver optmal did you mean optimal\?
segments 3 belongs to --solver segments
threads 0 from 1 to 1024
FLAGS
refused '--segments is 14; it must be at most the number of stages, 13' \
  --chain chain.json --memory 60GiB --solver segments --segments 14
refused '--every-n-layers is 0; it must be from 1 to' --chain chain.json \
  --memory 60GiB --solver every-n --every-n-layers 0
refused '--dtype, --bf16 and --fp16 exclude' --model bert.json --seq-length 1 \
  --device l4 --bf16 --dtype float32
refused 'bfloat16; v100-32g has no rate .* use float32 or float16' \
  --model bert.json --seq-length 1 --device v100-32g --bf16
refused '--quiet and --verbose' --chain chain.json --memory 1GiB --quiet \
  --verbose
refused 'unknown flag --seq-lenght; did you mean --seq-length\?' --seq-lenght 1
spoil() {
  sed "s/$2/$3/" "$4" >bad.json
  if [[ $4 == chain.json ]]; then
    refused "$1" --chain bad.json --memory 60GiB
  elif [[ $4 == card.json ]]; then
    refused "$1" --model bert.json --seq-length 1 --device ./bad.json
  else
    refused "$1" --model bad.json --seq-length 1 --device l4
  fi
}
spoil 'bad.json: model_type is "bart"; big_bird, bert and gpt2.*mean bert\?' \
  '"bert"' '"bart"' bert.json
spoil 'bad.json: hidden_size is absent; an estimate needs it' \
  '"hidden_size": 768,' '' bert.json
spoil 'bad.json: line 2, column' '768,' '768' bert.json
spoil 'bad.json: version is 2; this remat reads versions up to 1' \
  '"version": *1' '"version": 2' chain.json
spoil 'bad.json: version is 2; this remat reads versions up to 1' \
  '"version": *1' '"version": 2' card.json
echo 'plan: passed'
