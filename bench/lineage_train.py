"""One training of bench/lineage.py, in a process of its own: what `qkv pretrain` does, without its command line, whose
parser needs packages that a machine with a GPU may not have. It is told what to do in one word of JSON by
lineage_systems.py; a run that was begun goes on."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from qkv.config import Requested
from qkv.errors import InputError
from qkv.jobs.pretrain import resolve_pretraining_settings, resume, start
from qkv.train.log import for_stderr


def config_of(told: Mapping[str, Any]) -> Any:
    """The recipe, then what differs."""
    given = Requested(Path(told["recipe"]), {"data": told["data"], **told["flags"]}, told["settings"])
    return resolve_pretraining_settings(told["system"], given)


def main() -> None:
    told = json.loads(sys.argv[1])
    out = Path(told["out"])
    try:
        with for_stderr() as progress:
            if (out / "config.toml").is_file():
                finished = resume(out, progress)
            else:
                finished = start(config_of(told), out, progress)
    except InputError as error:
        sys.exit(str(error))
    if not finished.outcome.finished:
        sys.exit(f"{out}: stopped and saved at step {finished.outcome.step:,}")


if __name__ == "__main__":
    main()
