"""What the verbs print with --json, about the model in the box and about models of every family (models/)."""

from collections.abc import Callable

import pytest

from tests.golden.golden import BEGUN, MODELS, Answer, check_golden, kept

Ask = Callable[[str], Answer]

LINES: dict[str, str] = {
    "fill": "fill 'Paris is the [MASK] of France.' -k 4",
    "fill-zh": "fill 巴黎是[MASK]国的首都，也是[MASK]。",
    "fill-bert": "fill 'the [MASK] walked' --model {models}/bert",
    "embed": "embed 'A cat sleeps.' 'A kitten naps.' --model qkv-mini",
    "embed-bert": "embed 'the cat' 猫爱吃鱼 --pooling cls --normalize --model {models}/bert",
    "embed-layer": "embed 'the cat' --layer 0 --model {models}/bert",
    "embed-gpt": "embed 'the cat' --model {models}/gpt",
    "embed-elmo": "embed 'the cat' --model {models}/elmo",
    "embed-rnnlm": "embed 'the cat' --model {models}/rnnlm",
    "embed-word2vec": "embed 'the cat' --model {models}/word2vec",
    "embed-tokens": "embed 'the cat' --tokens --model {models}/bert",
    "attention": "attention 'The cat sat.' --pair 'It slept.' --layer 1 --head 2",
    "attention-token": "attention 'the cat walked' --token cat --model {models}/bert",
    "attention-gpt": "attention 'the cat walked' --layer 0 --head 1 --model {models}/gpt",
    "tokenize": "tokenize '他欠我100万 unhappiness' --pair 'a cat'",
    "tokenize-steps": "tokenize 'Héllo 北京!' --steps",
    "tokenize-words": "tokenize 'the cat 北京 zebra' --tokenizer {begun}/word-shards/tokenizer",
    "check-corpus": "check corpus.txt",
    "check-texts": "check texts.csv --task classify",
    "check-tags": "check tags.jsonl",
    "check-questions": "check questions.json --against dev-questions.json",
    "check-choices": "check choices.jsonl --task choice --model {models}/bert",
    "check-pairs": "check --pairs pairs.txt --test test.txt",
    "show": "show {begun}/shards -n 2 --max-length 24 --seed 3",
    "info": "info",
    "info-shards": "info {begun}/shards",
    "info-tokenizer": "info {begun}/shards/tokenizer",
    **{f"info-{model}": f"info {{models}}/{model}" for model in sorted(one.name for one in MODELS.iterdir())},
    "evaluate-classify": "evaluate {models}/classify texts.csv",
    "evaluate-tag": "evaluate {models}/tag tags.jsonl",
    "evaluate-crf": "evaluate {models}/crf tags.jsonl",
    "evaluate-answer": "evaluate {models}/answer questions.json",
    "evaluate-choice": "evaluate {models}/choice choices.jsonl",
    "evaluate-against": "evaluate {models}/classify texts.csv --against {models}/cnn",
    "evaluate-rnn": "evaluate {models}/rnn tags.jsonl",
    "evaluate-transformer": "evaluate {models}/transformer --pairs test.txt --decoding max_length=6",
    "predict-classify": "predict {models}/classify 'the cat is tired' 北京很好",
    "predict-tag": "predict {models}/tag 'the cat walked 北京'",
    "predict-crf": "predict {models}/crf 'the cat walked 北京'",
    "predict-answer": "predict {models}/answer 'the cat walked because it was tired' -q 'the animal'",
    "predict-choice": "predict {models}/choice 'the cat is unhappy' -q 'the street' --choice cat --choice 天气",
    "predict-cnn": "predict {models}/cnn 'the cat is tired'",
    "predict-rnn": "predict {models}/rnn 'the cat is tired'",
    "predict-file": "predict {models}/classify texts.csv",
    "generate-gpt": "generate {models}/gpt 'the cat' --greedy --max-length 6",
    "generate-sampled": "generate {models}/gpt 'the cat' --n 2 --seed 3 --top-k 20 --max-length 5",
    "generate-beams": "generate {models}/gpt 'the cat' --beams 3 --max-length 4",
    "generate-rnnlm": "generate {models}/rnnlm 'the cat' --greedy --max-length 6",
    "translate-transformer": "translate {models}/transformer '1 2 3' '4 5' --alignments --max-length 8",
    "translate-best": "translate {models}/transformer '1 2 3' --beams 3 --n-best 2 --max-length 6",
    "translate-seq2seq": "translate {models}/seq2seq '1 2 3' --alignments --max-length 8",
    "similar": "similar cat 北 -k 4 --model {models}/word2vec",
    "similar-nnlm": "similar cat -k 4 --model {models}/nnlm",
    "analogy": "analogy cat dog street -k 3 --model {models}/word2vec",
    "analogy-multiply": "analogy cat dog street --method multiply --model {models}/word2vec",
    "evaluate-vectors": "evaluate-vectors --model {models}/word2vec --data analogies.txt --data likeness.tsv",
    "convert": "convert {models}/bert new-bert --dtype float16 --overwrite",
    "convert-vectors": "convert {models}/word2vec new.vec --overwrite",
}


def completed(line: str) -> str:
    return line.format(models=MODELS, begun=BEGUN)


@pytest.mark.parametrize("name", LINES)
def test_what_is_printed_with_json(ask: Ask, name: str) -> None:
    answer = ask(f"{completed(LINES[name])} --json")
    assert answer.code == 0, answer.err
    check_golden(f"json/{name}", [kept(one) for one in answer.documents])


BAD: dict[str, str] = {
    "no-verb": "fil 'a [MASK]'",
    "no-option": "fill 'a [MASK]' --modle x",
    "no-argument": "fill",
    "no-mask": "fill 'nothing hidden'",
    "no-folder": "fill 'a [MASK]' --model nowhere",
    "no-number": "fill 'a [MASK]' -k many",
    "no-file": "finetune classify --train nowhere.csv --out run",
    "no-task": "finetune sort --train texts.csv --out run",
    "no-setting": "finetune classify --train texts.csv --out run --set train.lrr=1",
    "no-value": "pretrain bert --data {begun}/shards --out run --set rows=many",
    "no-model": "pretrain bart --data {begun}/shards --out run",
    "no-data": "pretrain bert --data nowhere --out run",
    "no-run": "pretrain --resume nowhere",
    "no-pairs": "train translate --out run",
    "no-words": "similar zebra --model {models}/word2vec",
    "not-fine-tuned": "predict {models}/bert 'a text'",
    "not-a-writer": "generate {models}/bert 'a text'",
    "not-a-translator": "translate {models}/bert 'a text'",
    "not-a-view": "look {models}/bert --view nothing --save page.html",
    "not-vectors": "analogy a b c --model texts.csv",
}


@pytest.mark.parametrize("name", BAD)
def test_what_a_person_gets_wrong(ask: Ask, name: str) -> None:
    answer = ask(completed(BAD[name]))
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("error: ") and "Traceback" not in answer.err
    assert len(answer.err.splitlines()) <= 4
