"""Parts of one piece of work on several threads, each of which computes its operations alone.

torch divides every operation among its threads and waits for the slowest of them, a hundred times for a batch; if other
programs use the CPUs, too, it mostly waits. Whole rows of a batch need no waiting until the end. For one row there is
nothing to divide, and torch's own way is right.
"""

from collections.abc import Callable, Sequence
from threading import Barrier, BrokenBarrierError, Lock, Thread
from typing import TypeVar

import torch

Result = TypeVar("Result")


def run_parts(parts: Sequence[Callable[[], Result]]) -> list[Result]:
    """Call each of the functions, in order, on as many threads as torch has; without gradients."""
    threads = min(torch.get_num_threads(), len(parts))
    if threads < 2:
        return [part() for part in parts]
    in_inference = torch.is_inference_mode_enabled()
    found: dict[int, Result] = {}
    errors: list[BaseException] = []
    left, lock, started = iter(range(len(parts))), Lock(), Barrier(threads + 1)

    def work() -> None:
        torch.get_num_threads()  # else torch would set the number of a new thread at its first operation
        torch.set_num_threads(1)  # of this thread, but also the default of others and of MKL, which the caller restores
        try:
            started.wait()
        except BrokenBarrierError:  # of the others not all could start
            return
        with torch.inference_mode() if in_inference else torch.no_grad():
            while not errors:
                with lock:
                    number = next(left, None)
                if number is None:
                    return
                try:
                    found[number] = parts[number]()
                except BaseException as error:
                    errors.append(error)

    total = torch.get_num_threads()
    # new threads each time: they cost 0.1 ms, and a pool would not survive a fork
    workers = [Thread(target=work, name=f"qkv-part-{number}", daemon=True) for number in range(threads)]
    try:
        for worker in workers:
            worker.start()
        started.wait()
    except BaseException:  # Ctrl-C, or no more threads
        started.abort()
        for worker in workers:
            if worker.ident is not None:
                worker.join()
        raise
    finally:
        torch.set_num_threads(total)
    try:
        for worker in workers:
            worker.join()
    except BaseException as error:  # Ctrl-C: the workers stop after their part
        errors.append(error)
        raise
    if errors:
        raise errors[0]
    return [found[number] for number in range(len(parts))]
