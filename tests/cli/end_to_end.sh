#!/usr/bin/env bash
# train, evaluate and predict as a user runs them.
source "$(dirname "$0")/lib.sh" "$@"

expect 0 '^remat [0-9.]+ \(libtorch [0-9.]+\)$' --version
expect 0 'Usage: remat COMMAND' --help
expect 2 'Usage: remat COMMAND'
for command in train evaluate predict; do
  expect 0 'Examples:' $command --help
  expect 0 '--max-seq-length TOKENS' $command --help
done
expect 0 '--learning-rate RATE .*\(default 5e-05\)' train --help

# A run, its files and its records.
expect 0 '^done +best accuracy (1|0\.[5-9]).*model in out$' \
  "${train[@]}" --output-dir out --max-steps 30 --eval-steps 10
grep -qE '^step +10/30  loss .*s/step .*tok/s  peak .*iB  eta' stderr ||
  die 'no progress line'
for file in config.json metrics.jsonl model.safetensors run.toml spiece.model
do
  [[ -s out/$file ]] || die "out/$file is missing"
done
[[ $(find out -type f | wc -l) == 5 ]] || die "more in out: $(ls -A out)"
[[ $(grep -c '"loss"' out/metrics.jsonl) == 30 ]] || die 'not 30 steps'
[[ $(grep -c '"eval_accuracy"' out/metrics.jsonl) == 3 ]] ||
  die 'not 3 evaluations'

# The last bit, with and without recomputation.
expect 0 'done' "${train[@]}" --output-dir all --max-steps 30 --eval-steps 10 \
  --gradient-checkpointing
expect 0 'turns --gradient-checkpointing on' "${train[@]}" --output-dir second \
  --max_steps=30 --eval_steps 10 --every_n_layers 2
for other in all second; do
  diff <(losses out) <(losses $other) || die "losses of $other differ"
  cmp out/model.safetensors $other/model.safetensors || die "$other differs"
done

# Switches with a value.
expect 0 'done' "${train[@]}" --output-dir switch --max-steps 1 \
  --gradient-checkpointing=1 --json=False
grep -q '^gradient-checkpointing = true' switch/run.toml || die '=1 is not on'

# run.toml runs again as it is; the command line wins.
mkdir elsewhere
(cd elsewhere && expect 0 'done' train --config ../second/run.toml \
  --output-dir again --quiet && [[ ! -s stderr ]]) || die 'run.toml fails'
cmp out/model.safetensors elsewhere/again/model.safetensors ||
  die 'the run of run.toml differs'
diff <(grep -v '^#\|output-dir' second/run.toml) \
  <(grep -v '^#\|output-dir' elsewhere/again/run.toml) || die 'run.toml differs'

# --json, and nothing but it on standard output.
expect 0 '^\{"steps":6,.*"median_step_seconds":.*"output_dir":"json"\}$' \
  "${train[@]}" --output-dir json --num-train-epochs 0.5 --json
[[ $(wc -l <stdout) == 1 ]] || die 'more than one line'

expect 0 '^accuracy +(1|0\.[5-9])[0-9.]* +\(majority class 0\.5000\)' \
  evaluate --model out --test-file test.jsonl
expect 0 '^\{"examples":16,"accuracy":.*"ship":\{"precision":' \
  evaluate --model out --test-file test.jsonl --json

# predict: a file of any kind, standard input, records.
echo 'sea sail wave salt harbour anchor of the sea' >page
expect 0 '^(ship|tree)  [01]\.[0-9]{4}  \((ship|tree) ' predict --model out page
cp stdout answer
"$remat" predict --quiet --model out <page | cmp - answer || die 'stdin differs'
"$remat" predict --quiet --model out - <page | cmp - answer || die '- differs'
expect 0 '^\{"label":"(ship|tree)","probability":' \
  predict --model out test.jsonl --json
[[ $(wc -l <stdout) == 16 ]] || die 'not a line a text'
cp test.jsonl UPPER.JSONL
expect 0 . predict --model out UPPER.JSONL
[[ $(wc -l <stdout) == 16 ]] || die '.JSONL is not read as .jsonl'
printf 'text\n"sea, sail"\nmoss\n' >two.csv
expect 0 . predict --model out two.csv
[[ $(wc -l <stdout) == 2 ]] || die 'not a line a row'

# Starting from weights: the same labels keep the head, others do not.
expect 0 'done' train --init-from out --train-file train.jsonl --output-dir more \
  --max-steps 2
grep -q 'fresh weights' stderr && die 'the head was not kept'
cmp out/spiece.model more/spiece.model || die 'another tokenizer'

# What counts are the labels beside the weights, not those of --model.
swapped='"id2label": {"0": "tree", "1": "ship"}'
sed "s/{\"model_type\"/{$swapped, \"model_type\"/" config.json >swapped.json
for model in swapped.json config.json; do
  expect 0 'done' train --init-from out --model $model --max-steps 1 \
    --learning-rate 1e-9 --train-file train.jsonl --output-dir kept \
    --overwrite-output-dir
  grep -q 'fresh weights' stderr && die "$model: the head was not kept"
  diff <(grep -A3 id2label out/config.json) \
    <(grep -A3 id2label kept/config.json) || die "$model: other labels"
done
sed "s/tree/leaf/" swapped.json >leaf.json
sed 's/"label": "tree"/"label": "leaf"/' train.jsonl >leaf.jsonl
expect 0 'head starts from fresh weights: out has other labels' \
  train --init-from out --model leaf.json --max-steps 1 \
  --train-file leaf.jsonl --output-dir leaf

make_texts 24 4 red green blue >colours.jsonl
expect 0 'head starts from fresh weights: out has other labels' \
  train --init-from out --train-file colours.jsonl --output-dir colours \
  --max-steps 2
expect 0 '"labels":\{"blue":.*"green":.*"red":' evaluate --model colours \
  --test-file colours.jsonl --json

# CSV, other columns, whole numbers as labels; how many texts are cut is said.
printf 'body,class\n' >numbers.csv
for i in 1 2 3 4 5 6; do
  echo "sea sail wave $i leaf root wood moss,$((i % 3))"
done >>numbers.csv
expect 0 'numbers.csv: 6 of 6 texts are longer than 8 tokens' \
  train --model config.json --tokenizer out/spiece.model \
  --train-file numbers.csv --text-column body --label-column class \
  --max-seq-length 8 --max-steps 2 --output-dir numbers
expect 0 '^[012]  ' predict --model numbers page
echo 'end to end: passed'
