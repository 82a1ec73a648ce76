#!/usr/bin/env bash
# One collection × some rankers, 25 % removed by documents and by queries: the original, the retrained ranker, and cocol
# with the retrained ranker's test MRR as its target. Writes every ranker and the table under OUT.
#
#   runs/first_table.sh COLLECTION OUT [BASE] [RANKER ...]
set -euo pipefail
collection=$1 out=$2 base=${3:-} rankers=("${@:4}")
[ ${#rankers[@]} -gt 0 ] || rankers=(cross-encoder bi-encoder)
unrank=${UNRANK:-unrank}
mkdir -p "$out"
for remove in documents queries; do
  [ -e "$out/$remove.json" ] || $unrank split "$collection" --remove "$remove" --share 0.25 --out "$out/$remove.json"
done
for ranker in "${rankers[@]}"; do
  $unrank train "$collection" --ranker "$ranker" ${base:+--base "$base"} --out "$out/$ranker-original"
  for remove in documents queries; do
    name=$out/$ranker-$remove
    $unrank train "$collection" --ranker "$ranker" ${base:+--base "$base"} --removal "$out/$remove.json" --out "$name-retrain"
    target=$(python3 -c "import json, sys; print(json.load(open(sys.argv[1]))['after']['test']['mrr'])" "$name-retrain/unrank.json")
    $unrank forget "$out/$ranker-original" "$collection" --removal "$out/$remove.json" --target "$target" --out "$name-cocol"
  done
done
