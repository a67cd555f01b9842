"""What bertviz makes of a sentence: one HTML file, and how long that took. Started by look.py, in a Python that has
bertviz and qkv:

    python bench/look_peer.py FOLDER TEXT VIEW OUT [LAYERS]

VIEW is head_view or model_view, LAYERS how many layers are put into the page (all, if it is not said). Prints one line
of JSON: tokens, layers, seconds_model (a forward pass with weights), seconds_page (bertviz's own work), bytes.
"""

import json
import sys
import time
from pathlib import Path

import torch

import qkv
from qkv.data.batch import Batch


def main() -> None:
    if len(sys.argv) < 5:
        print(__doc__)
        return
    import bertviz

    folder, text, view, out = sys.argv[1:5]
    model = qkv.load(folder)
    layers = int(sys.argv[5]) if len(sys.argv) > 5 else model.config.layers
    encoded = model.tokenizer.encode(text)
    batch = Batch.of([encoded.ids], segments=[encoded.segments])
    begin = time.perf_counter()
    with torch.inference_mode():
        found = model.network.encoder(**batch.inputs(), attention=frozenset(range(model.config.layers))).attention
    attention = tuple(
        found[layer] for layer in range(model.config.layers)
    )  # (1, H, T, T) each, as transformers has them
    drawn = time.perf_counter()
    page = getattr(bertviz, view)(attention, encoded.tokens, include_layers=list(range(layers)), html_action="return")
    Path(out).write_text(f"<!doctype html><meta charset=utf-8><body>{page.data}</body>", encoding="utf-8")
    end = time.perf_counter()
    figures = {
        "tokens": len(encoded.ids),
        "layers": layers,
        "seconds_model": drawn - begin,
        "seconds_page": end - drawn,
    }
    print(json.dumps(figures | {"bytes": Path(out).stat().st_size}))


if __name__ == "__main__":
    main()
