"""The four systems of bench/lineage.py, tiny and with random weights, in the folders that their trainings leave."""

from pathlib import Path

from safetensors.torch import save_file

from qkv.models.bert import folder as hf
from qkv.models.bert.network import BertConfig, BertWithHeads
from qkv.models.elmo.network import Elmo, ElmoConfig
from qkv.models.folders.own import save_folder
from qkv.models.gpt import folder
from qkv.models.gpt.network import GPT, GPTConfig
from qkv.models.word2vec.network import Word2Vec, Word2VecConfig
from qkv.text.tokenizer import Tokenizer
from tests.support.folders import randomise

LENGTH = 48


def make_systems(work: Path, tokenizer: Tokenizer) -> Path:
    size = tokenizer.size
    vectors = Word2Vec(Word2VecConfig(size, width=16))
    elmo_config = ElmoConfig(size, filters=(8, 8), width=8, cell_width=12)
    elmo = Elmo(elmo_config, list(tokenizer.vocabulary))
    gpt = GPT(GPTConfig(size, layers=2, width=16, heads=2, inner_width=32, max_length=LENGTH))
    bert_config = BertConfig(size, layers=2, width=16, heads=2, inner_width=32, max_length=LENGTH)
    bert = BertWithHeads(bert_config, ["masked", "next_sentence"], pooler=True)
    for network in (vectors, elmo, gpt, bert):
        randomise(network)
    save_folder(
        work / "word2vec" / "model", "word2vec", vars(vectors.config), {"embedding": vectors.embedding}, tokenizer
    )
    save_file({"context": vectors.context.detach()}, work / "word2vec" / "context.safetensors")
    sizes = vars(elmo_config) | {"filters": list(elmo_config.filters)}
    save_folder(work / "elmo" / "model", "elmo", sizes, elmo.state_dict(), tokenizer)
    folder.save(work / "gpt" / "model", gpt, tokenizer, {"job": "pretrain"})
    hf.save(work / "bert" / "model", bert, tokenizer)
    return work
