#!/usr/bin/env bash
# Everything that a user can get wrong: exit code and text, and nothing written.
source "$(dirname "$0")/lib.sh" "$@"

# refused PATTERN ARGUMENT...: exit code 2, and no output directory.
refused() {
  local pattern=$1
  shift
  expect 2 "$pattern" "$@"
  [[ ! -e out ]] || die "remat $*: left $(find out)"
}

# bad_texts PATTERN: the same for training texts from standard input.
bad_texts() {
  cat >bad.jsonl
  refused "$1" train --model config.json --train-file bad.jsonl --output-dir out
}

# Files.
refused 'missing.jsonl: No such file' train --model config.json \
  --train-file missing.jsonl --output-dir out
refused 'is a directory|\.jsonl|\.csv' train --model config.json \
  --train-file . --output-dir out
refused 'missing.json: No such file' train --model missing.json \
  --train-file train.jsonl --output-dir out
if [[ $(id -u) != 0 ]]; then
  cp train.jsonl secret.jsonl
  chmod 0 secret.jsonl
  refused 'secret.jsonl: Permission denied' train --model config.json \
    --train-file secret.jsonl --output-dir out
fi
cp train.jsonl train.parquet
refused 'train.parquet.*jsonl' train --model config.json \
  --train-file train.parquet --output-dir out

# Texts.
bad_texts 'bad.jsonl.*(empty|no )' </dev/null
{ head -2 train.jsonl; echo '{"text": "a", "label": lse}'; } |
  bad_texts 'bad.jsonl:3: column [0-9]+'
{ head -1 train.jsonl; echo '{"text": "a b"}'; } | bad_texts 'bad.jsonl:2.*label'
echo '{"body": "a", "label": "x"}' | bad_texts 'bad.jsonl:1.*text.*body'
{ head -1 train.jsonl; echo '{"text": " ", "label": "x"}'; } |
  bad_texts 'bad.jsonl:2.*empty'
{ head -1 train.jsonl; printf '{"text": "a\xff", "label": "x"}\n'; } |
  bad_texts 'bad.jsonl:2.*UTF-8'
grep ship train.jsonl | bad_texts 'ship'
printf 'text,label\n"open,ship\n' >bad.csv
refused 'bad.csv' train --model config.json --train-file bad.csv --output-dir out
make_texts 6 5 ship tree stone >three.jsonl
refused 'stone.*three.jsonl|three.jsonl.*stone' train --model config.json \
  --train-file train.jsonl --validation-file three.jsonl --output-dir out

# Values of flags.
while read -r flag value pattern; do
  refused "\[train\] --$flag is \"?$value.*$pattern" "${train[@]}" \
    --output-dir out "--$flag" "$value"
done <<'FLAGS'
every-n-layers 0 at least 1 \(1 recomputes every layer, 2 every second one\)
every-n-layers -1 at least 1
per-device-train-batch-size 0 at least 1
per-device-train-batch-size -8 at least 1
per-device-eval-batch-size 0 at least 1
gradient-accumulation-steps 0 at least 1
learning-rate 0 above 0
learning-rate nan above 0
learning-rate inf above 0
learning-rate fast a number
warmup-ratio 1.5 from 0 to 1
weight-decay -1 from 0
max-grad-norm -1 0 \(no clipping\)
adam-beta1 1 below 1
max-steps 0 at least 1
max-steps 2.5 a whole number
max-steps 99999999999999999999 too large
num-train-epochs 0 above 0
eval-steps 0 at least 1
logging-steps 0 at least 1
seed -1 at least 0
threads 0 from 1 to 1024
max-seq-length 257 from 3 to 256, the max_position_embeddings
max-seq-length 0 from 3 to 256
vocab-size 0 from 1 to
allocator cachign did you mean caching\?
FLAGS
for value in banana yes 2; do
  refused "\[train\] --json is \"$value\"; it must be true or false" \
    "${train[@]}" --output-dir out --json=$value
done
refused '--config is ""; it must name a TOML file' "${train[@]}" \
  --output-dir out --config ''
refused 'nowhere: there is no such directory' train --init-from nowhere \
  --model config.json --train-file train.jsonl --output-dir out
refused 'vocab' "${train[@]}" --output-dir out --vocab-size 100000
refused 'unknown flag --max-seq-lenght; did you mean --max-seq-length\?' \
  "${train[@]}" --output-dir out --max-seq-lenght 128
refused 'unknown flag --frobnicate\. See remat train --help' \
  "${train[@]}" --output-dir out --frobnicate
refused 'unexpected argument extra' "${train[@]}" --output-dir out extra
refused 'unknown command trian; did you mean train\?' trian
refused 'unknown command --verison; did you mean --version\?' --verison
refused '--train-file is missing' train --model config.json --output-dir out
refused '--output-dir is missing' train --model config.json \
  --train-file train.jsonl
refused '--model is missing' train --train-file train.jsonl --output-dir out
refused '--quiet and --verbose' "${train[@]}" --output-dir out --quiet --verbose

# Configurations.
bad_config() {
  sed "s/$2/$3/" config.json >bad.json
  refused "$1" train --model bad.json --train-file train.jsonl --output-dir out
}
bad_config 'bad.json.*num_attention_heads' 'attention_heads": 2' \
  'attention_heads": 3'
bad_config 'bad.json.*hidden_size' 'hidden_size": 32' 'hidden_size": -32'
bad_config 'bad.json.*model_type' 'big_bird' 'gpt2'
bad_config 'bad.json.*id2label has the label "a" for the classes 0 and 1' \
  '{"model_type"' '{"id2label": {"0": "a", "1": "a"}, "model_type"'
bad_config 'bad.json.*column' '32,' '32'
toml() {
  cat >run.toml
  refused "$1" "${train[@]}" --output-dir out --config run.toml
}
printf 'seed = 1\nmax-seq-lenght = 128\n' |
  toml 'run.toml:2: unknown option max-seq-lenght; did you mean max-seq-length\?'
echo '[train]' | toml 'run.toml:1: unknown option train'
echo 'max-steps = "many"' | toml 'run.toml:1: max-steps is many; it must be a whole'
echo 'seed = 1.0' | toml 'run.toml:1: seed is 1.0; it must be a whole'
printf 'max-steps = 1\nmax_steps = 2\n' | toml 'run.toml:2: max_steps stands in line 1 already'
echo 'text-column = 3' | toml 'run.toml:1: text-column is 3; it must be a string'
echo 'learning-rate = nan' >run.toml
refused '--learning-rate is nan' train --model config.json --output-dir out \
  --train-file train.jsonl --config run.toml
printf 'seed = 1\nseed = = 2\n' | toml 'run.toml:2: column'
refused 'missing.toml: No such file' train --config missing.toml

# Output directories.
mkdir taken
echo '{}' >taken/config.json
expect 2 'taken holds another run .*--overwrite-output-dir' "${train[@]}" \
  --output-dir taken
[[ $(ls taken) == config.json ]] || die 'the other run was touched'
expect 2 'train.jsonl is a file' "${train[@]}" --output-dir train.jsonl
mkdir locked
if [[ $(id -u) != 0 ]]; then
  chmod 555 locked
  expect 2 'locked/new cannot be written: .*/locked: Permission' \
    "${train[@]}" --output-dir locked/new
elif mount -t tmpfs -o ro tmpfs locked 2>/dev/null; then
  trap 'umount "$work/locked"; rm -rf "$work"' EXIT
  expect 2 'locked/new cannot be written: .*/locked: Read-only' \
    "${train[@]}" --output-dir locked/new
fi
expect 0 'done' "${train[@]}" --output-dir taken --overwrite-output-dir \
  --max-steps 2
[[ $(grep -c '"loss"' taken/metrics.jsonl) == 2 ]] || die 'not overwritten'

# Training that explodes: exit code 1, and the best model stays, with the files
# that say what it is.
sha256sum taken/{model.safetensors,run.toml,metrics.jsonl} >before
expect 1 'step [0-9]+: .* is -?(nan|inf).*--learning-rate' "${train[@]}" \
  --output-dir taken --overwrite-output-dir --learning-rate 10 \
  --adam-epsilon 1e-30 --max-grad-norm 0 --weight-decay 10 --max-steps 400 \
  --eval-steps 400
sha256sum --quiet -c before || die 'the model was replaced'

# evaluate and predict.
refused '--model is missing' evaluate --test-file test.jsonl
refused 'nowhere: there is no such directory' evaluate --model nowhere \
  --test-file test.jsonl
refused 'stone' evaluate --model taken --test-file three.jsonl
refused '--per-device-eval-batch-size is 0' evaluate --model taken \
  --test-file test.jsonl --per-device-eval-batch-size 0
refused 'standard input is empty' predict --model taken
printf 'a\xff' >latin
refused 'latin: .*UTF-8' predict --model taken latin
refused '--format is jsonn; it must be .*did you mean jsonl\?' \
  predict --model taken latin --format jsonn
rm taken/spiece.model
refused 'taken: spiece.model is missing' predict --model taken config.json \
  --format text
refused 'taken has no spiece.model' train --init-from taken \
  --train-file train.jsonl --output-dir out
echo 'bad input: passed'
