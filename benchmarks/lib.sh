# Sourced by the benchmarks, from the top of the tree: a built program, the
# manual pages, and short training runs of the quickstart's model.

remat=build/program/bin/remat
data=data/manpages
work=out/benchmarks

# The program, the data and, once, a tokenizer and the longest texts only, so
# that every batch is full.
prepare() {
  if [[ ! -x $remat ]]; then
    cmake --preset program >/dev/null
    cmake --build --preset program >/dev/null
  fi
  scripts/get-data manpages --output "$data" >&2
  mkdir -p "$work"
  awk 'length($0) > 45000' "$data/train.jsonl" >"$work/long.jsonl"
  sed 's/"max_position_embeddings": *[0-9]*/"max_position_embeddings": 8192/' \
    examples/quickstart/config.json >"$work/config.json"
  if [[ ! -f $work/spiece.model ]]; then
    run tokenizer 128 --max-steps 1 >/dev/null
    cp "$work/tokenizer/spiece.model" "$work/spiece.model"
  fi
}

# Texts of a batch and steps of a measured run.
batch=2
steps=5

# choose_model quickstart|base: base has the layers of BigBird-base, 12 of 768.
choose_model() {
  case $1 in
    quickstart) return ;;
    base) ;;
    *) echo "unknown model $1; it is quickstart or base" >&2; exit 2 ;;
  esac
  sed -i -E 's/("hidden_size": *)[0-9]+/\1768/; s/("num_hidden_layers": *)[0-9]+/\112/
    s/("num_attention_heads": *)[0-9]+/\112/; s/("intermediate_size": *)[0-9]+/\13072/' \
    "$work/config.json"
  batch=1
  steps=3
}

# run NAME LENGTH FLAG...
run() {
  local name=$1 length=$2
  shift 2
  "$remat" train --model "$work/config.json" --train-file "$work/long.jsonl" \
    --output-dir "$work/$name" --overwrite-output-dir \
    --max-seq-length "$length" --per-device-train-batch-size "$batch" --seed 1 \
    --quiet --json "$@"
}

# measure NAME LENGTH FLAG...: some steps; the result is NAME.json.
measure() {
  local name=$1
  run "$@" --max-steps "$steps" --tokenizer "$work/spiece.model" >"$work/$name.json"
}

# field KEY NAME: a number of the run's result.
field() {
  sed -n "s/.*\"$1\": *\\([-+0-9.eE]*\\).*/\\1/p" "$work/$2.json" | head -n 1
}

median() {
  sort -g | awk '{ value[NR] = $1 } END { print value[int((NR + 1) / 2)] }'
}
