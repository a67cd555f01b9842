"""Runs of several processes that start at once: a parent imports everything and forks one child for each rank.

To torch.distributed a child is the process that torchrun would start: it has the same variables in its environment.
"""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.forks import ENVIRONMENT

PARENT = """
import importlib, json, os, sys
import torch._dynamo
import qkv.cli.terminal, qkv.models.bert.pretrain, qkv.models.nnlm.pretrain, qkv.train.loop, qkv.train.sharded
import qkv.jobs.finetune.run, qkv.jobs.translate.training, qkv.jobs.embed
import tests.support.rank_jobs

qkv.train.loop.measure_peak = lambda *_: 5e10  # it takes 0.3 s
print("ready", flush=True)
for line in sys.stdin:
    command = json.loads(line)
    children = []
    for rank, said in enumerate(command["said"]):
        if rank in command["absent"]:
            continue
        child = os.fork()
        if child == 0:
            out = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(out, 1)
            os.dup2(out, 2)
            size = len(command["said"])
            if size > 1:
                local = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size}
                os.environ.update({name: str(value) for name, value in local.items()})
            os.environ.update(command["environment"])
            module, name = command["call"].split(":")
            try:
                code = getattr(importlib.import_module(module), name)(*command["given"])
            except BaseException as error:
                print(repr(error))
                code = 9
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
        children.append(child)
    print(json.dumps([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]), flush=True)
"""


class Ended(NamedTuple):
    codes: list[int]
    said: list[str]  # what each wrote

    @property
    def result(self) -> Any:
        """The last line of the first rank, as JSON."""
        return json.loads(self.said[0].strip().splitlines()[-1])


class Ranks:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        root = Path(__file__).resolve().parents[2]
        path = os.pathsep.join([str(root), str(root / "src"), os.environ.get("PYTHONPATH", "")])
        self._parent = subprocess.Popen(
            [sys.executable, "-c", PARENT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT | {"PYTHONPATH": path, "QKV_LANG": "en"},
        )
        assert self._answer() == "ready"

    def call(
        self,
        size: int,
        call: str,
        *given: object,
        environment: Mapping[str, str] | None = None,
        absent: tuple[int, ...] = (),
    ) -> Ended:
        """Call `module:function` in so many ranks; its result is the exit code."""
        assert self._parent.stdin is not None
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            port = one.getsockname()[1]
        said = [self.folder / f"rank-{rank}.txt" for rank in range(size)]
        common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo"}
        command = {
            "call": call,
            "given": given,
            "said": [str(file) for file in said],
            "environment": common | dict(environment or {}),
            "absent": absent,
        }
        self._parent.stdin.write(json.dumps(command) + "\n")
        self._parent.stdin.flush()
        codes = json.loads(self._answer())
        return Ended(codes, [file.read_text() for rank, file in enumerate(said) if rank not in absent])

    def qkv(self, size: int, *words: object, **how: Any) -> Ended:
        """Run a command of qkv in so many ranks."""
        return self.call(size, "qkv.cli.main:main", [str(word) for word in words], **how)

    def close(self) -> None:
        assert self._parent.stdin is not None
        assert self._parent.stdout is not None
        self._parent.stdin.close()
        self._parent.wait()
        self._parent.stdout.close()

    def _answer(self) -> str:
        assert self._parent.stdout is not None
        return self._parent.stdout.readline().strip()
