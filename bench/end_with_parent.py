"""Worker processes that end when whoever began them is gone: killed, it can tell them nothing, and they would go on
holding a GPU. Given to a pool as its initializer; no program by itself."""

import multiprocessing
import os
from threading import Thread


def end_with_parent() -> None:
    Thread(target=_wait_and_end, daemon=True).start()


def _wait_and_end() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None, "this is for the processes of a pool"
    parent.join()
    os._exit(1)
