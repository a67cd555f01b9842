"""A `qkv` for the PATH that starts at once: a parent has imported everything, and forks for each command.

Python with torch takes seconds to start; a child of this one takes none. It runs `main` with the words, the folder, the
environment and the open files of whoever called, several at a time where a shell asks for it, and gives the exit code;
SIGTERM goes on to it.
`qkv-python CODE` beside it is `python -c CODE` in the same way.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

PARENT = """
import gc, importlib, json, os, pkgutil, select, signal, socket, sys, traceback
import torch._dynamo  # imported by the first optimizer, and slow
import qkv

for module in pkgutil.walk_packages(qkv.__path__, "qkv."):
    if not module.name.endswith("__main__"):
        try:
            importlib.import_module(module.name)
        except ImportError:
            pass  # what it needs is not installed here
from qkv.cli.main import main

qkv.train.loop.measure_peak = lambda *_: 5e10  # it takes 0.3 s
os.fsync = os.fstat  # nobody waits for the disk
gc.freeze()
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
with socket.socket(socket.AF_UNIX) as listener:
    listener.bind(sys.argv[1])
    listener.listen()
    print("ready", flush=True)
    while listener in select.select([listener, sys.stdin], [], [])[0]:  # until whoever started it has gone
        connection, _ = listener.accept()
        if os.fork():
            connection.close()
            continue
        listener.close()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _, files, _, _ = socket.recv_fds(connection, 1, 3)
        told = b"".join(iter(lambda: connection.recv(1 << 16), b""))
        connection.sendall(os.getpid().to_bytes(4, "big"))
        for number, file in enumerate(files):
            os.dup2(file, number)
            os.close(file)
        sys.stdin, sys.stdout = open(0, encoding="utf-8"), open(1, "w", encoding="utf-8")
        sys.stderr = open(2, "w", encoding="utf-8", buffering=1)
        program, words, folder, environment = json.loads(told)
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        code = 1
        try:
            code = exec(words[0], {"__name__": "__main__"}) or 0 if program == "qkv-python" else main(words)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            connection.sendall(bytes([code]))
            os._exit(code)
"""
COMMAND = """#!{python} -SE
import json, os, signal, socket, sys
with socket.socket(socket.AF_UNIX) as parent:
    parent.connect({place!r})
    socket.send_fds(parent, [b" "], [0, 1, 2])
    parent.sendall(json.dumps([{name!r}, sys.argv[1:], os.getcwd(), dict(os.environ)]).encode())
    parent.shutdown(socket.SHUT_WR)
    child = int.from_bytes(parent.recv(4), "big")
    signal.signal(signal.SIGTERM, lambda number, frame: os.kill(child, number))
    sys.exit((parent.recv(1) or b"\\x01")[0])
"""


@contextmanager
def warm_qkv(environment: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """The environment with that `qkv` before all others on its PATH."""
    with tempfile.TemporaryDirectory() as folder:  # a socket's place has to be short
        place = Path(folder, "socket")
        for name in ("qkv", "qkv-python"):
            command = Path(folder, name)
            command.write_text(COMMAND.format(python=sys.executable, place=str(place), name=name), encoding="utf-8")
            command.chmod(0o755)
        with subprocess.Popen(
            [sys.executable, "-c", PARENT, str(place)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=dict(environment),
        ) as parent:  # which closes its input at the end
            assert parent.stdout is not None and parent.stdout.readline() == b"ready\n"
            yield {**environment, "PATH": os.pathsep.join([folder, environment["PATH"]])}
