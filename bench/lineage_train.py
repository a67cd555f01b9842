"""One training of bench/lineage.py, in a process of its own: what `qkv pretrain` does, without its command line, whose
parser needs packages that a machine with a GPU may not have. It is told what to do in one word of JSON by
lineage_systems.py; a run that was begun goes on."""

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from qkv.errors import InputError
from qkv.models.bert import pretrain
from qkv.models.elmo import pretrain as elmo
from qkv.models.elmo import pretrain as elmo_config
from qkv.models.gpt import pretrain as gpt
from qkv.models.gpt import pretrain as gpt_config
from qkv.models.pretraining import Finished
from qkv.models.word2vec import learners
from qkv.models.word2vec import pretrain as word2vec
from qkv.train.progress import Progress, for_stderr

CONFIGURED: dict[str, Callable[..., Any]] = {
    "word2vec": learners.configured,
    "elmo": elmo_config.configured,
    "gpt": gpt_config.configured,
    "bert": pretrain.configured,
}
START: dict[str, Callable[..., Finished]] = {
    "word2vec": word2vec.start,
    "elmo": elmo.start,
    "gpt": gpt.start,
    "bert": pretrain.start,
}
RESUME: dict[str, Callable[[Path, Progress], Finished]] = {
    "word2vec": word2vec.resume,
    "elmo": elmo.resume,
    "gpt": gpt.resume,
    "bert": pretrain.resume,
}


def config_of(told: Mapping[str, Any]) -> Any:
    """The recipe, then what differs."""
    return CONFIGURED[told["system"]](told["data"], Path(told["recipe"]), told["flags"], told["settings"])


def main() -> None:
    told = json.loads(sys.argv[1])
    out, system = Path(told["out"]), told["system"]
    try:
        with for_stderr() as progress:
            if (out / "config.toml").is_file():
                finished = RESUME[system](out, progress)
            else:
                finished = START[system](config_of(told), out, progress)
    except InputError as error:
        sys.exit(str(error))
    if not finished.outcome.finished:
        sys.exit(f"{out}: stopped and saved at step {finished.outcome.step:,}")


if __name__ == "__main__":
    main()
