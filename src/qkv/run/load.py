"""`qkv.load`: a folder, a name of the zoo or a hub id in, a model that answers out."""

from pathlib import Path

import torch

from qkv.errors import InputError, did_you_mean, reading
from qkv.interop.folder import GPTS, model_type_of
from qkv.interop.hub import locate
from qkv.interop.readers import open_model
from qkv.interop.zoo import DEFAULT_MODEL
from qkv.run.places import device_named, model_folder
from qkv.run.predict import Model
from qkv.run.pretrained import OPENED, open_any_gpt, open_pretrained

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def load(
    name: str | Path = DEFAULT_MODEL, device: str = "cpu", threads: int | None = None, dtype: str = "float32"
) -> Model:
    """Load a Hugging Face folder, a run of qkv, a model that comes with qkv, or `hf:owner/name` from the hub.

    Without a name it is qkv-mini, a small Chinese and English BERT that lies in the package. Nothing reaches for the
    network unless a hub id is given. `threads` is how many CPU threads torch may use; torch keeps one such number for
    the whole process, so the model called last sets it.

    `dtype` is what the model computes in: float32, bfloat16 or float16. With half the bits a GPU takes packed rows
    through one variable-length kernel (see nn/fused.py), and vectors change in their third digit; they are handed back
    as float32 in any case.

    A word2vec, NNLM, recurrent language model, ELMo or GPT, on which no task was put, embeds texts and tokens (`embed`,
    `embed_tokens`), and says so when it is asked for something else.

    >>> model = load()                                                            # doctest: +SKIP
    >>> model.fill("巴黎是[MASK]国的首都。")[0].best.text                          # doctest: +SKIP
    '法'
    >>> model.embed(["a first text", "a second text"]).similarity()               # doctest: +SKIP
    """
    if threads is not None and threads < 1:
        raise InputError(f"threads must be 1 or more, not {threads}.")
    if dtype not in DTYPES:
        raise InputError(f"Unknown dtype '{dtype}'.{did_you_mean(dtype, DTYPES)} Known: {', '.join(DTYPES)}.")
    place = device_named(device)
    path = model_folder(locate(name))
    with reading(path):
        model_type = model_type_of(path)
    if model_type in OPENED:
        return Model(open_pretrained(path, model_type, DTYPES[dtype]), place, threads)
    if model_type in GPTS:
        return Model(open_any_gpt(path, DTYPES[dtype]), place, threads)
    return Model(open_model(path, dtype=DTYPES[dtype]), place, threads)
