"""Which models `qkv pretrain` trains."""

from qkv.errors import did_you_mean

PRETRAININGS = {
    "bert": "qkv.models.bert.pretrain:PRETRAINING_BERT",
    "word2vec": "qkv.models.word2vec.pretrain:PRETRAINING_WORD2VEC",
    "elmo": "qkv.models.elmo.pretrain:PRETRAINING_ELMO",
    "nnlm": "qkv.models.language_model:PRETRAINING_NNLM",
    "rnnlm": "qkv.models.language_model:PRETRAINING_RNNLM",
    "gpt": "qkv.models.gpt.pretrain:PRETRAINING_GPT",
}
"""How each is trained, as a `Pretraining`: module and name, so that nothing is imported for the others."""
MODELS = tuple(PRETRAININGS)


def unknown_model(named: object) -> str:
    hint = did_you_mean(named, MODELS) if isinstance(named, str) else ""
    return f"unknown model_type {named!r}.{hint} Known: {', '.join(MODELS)}."
