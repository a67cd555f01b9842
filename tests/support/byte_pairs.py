"""Small tokenizers of byte pairs, as GPT-2 and GPT have them, learned on the spot, and the files they come in."""

import json
from functools import cache
from pathlib import Path

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

TEXTS = (
    "The cat sat on the mat, and the cat didn't mind.",
    "To be,  or\n  not to be?\tThat. \n是。 明月光！\n终",
    "北京是中国的首都 😀 naïve café — 100 %",
    "the dog ate the hat that the cat had sat on",
)


def gpt2_backend() -> tokenizers.Tokenizer:
    """Pairs of bytes, with the mark that ends a text: 300 tokens."""
    return tokenizers.Tokenizer.from_str(_of_bytes())


def gpt_backend() -> tokenizers.Tokenizer:
    """Pairs of characters of lower-case words, whose last piece says so; no mark but the unknown word."""
    return tokenizers.Tokenizer.from_str(_of_words())


@cache  # the library breaks ties by chance: learned twice, ids would differ
def _of_bytes() -> str:
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    learner = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(TEXTS * 3, learner)
    return str(backend.to_str())


@cache
def _of_words() -> str:
    backend = tokenizers.Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.BPEDecoder(suffix="</w>")
    learner = trainers.BpeTrainer(
        vocab_size=200, special_tokens=["<unk>"], end_of_word_suffix="</w>", show_progress=False
    )
    backend.train_from_iterator([text for text in TEXTS if text.isascii()] * 3, learner)
    return str(backend.to_str())


def write_tokenizer_json(folder: Path, backend: tokenizers.Tokenizer) -> Path:
    folder.mkdir(parents=True)
    backend.save(str(folder / "tokenizer.json"))
    return folder


def write_two_files(folder: Path, backend: tokenizers.Tokenizer) -> Path:
    """vocab.json and merges.txt, as the first releases had them."""
    folder.mkdir(parents=True)
    model = json.loads(backend.to_str())["model"]
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in model["merges"]]
    (folder / "vocab.json").write_text(json.dumps(model["vocab"]), encoding="utf-8")
    (folder / "merges.txt").write_text("#version: 0.2\n" + "".join(f"{one}\n" for one in merges), encoding="utf-8")
    return folder
