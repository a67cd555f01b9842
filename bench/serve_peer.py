"""A server of sentence vectors as people write it: starlette, uvicorn, sentence-transformers, and a queue for batches.

python bench/serve_peer.py FOLDER THREADS        # prints its address
"""

import asyncio
import socket
import sys
import threading
from queue import Queue
from typing import Any

import torch
import uvicorn
from sentence_transformers import SentenceTransformer
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

BATCH = 32


def main() -> None:
    torch.set_num_threads(int(sys.argv[2]))
    model = SentenceTransformer(sys.argv[1], device="cpu")
    model.max_seq_length = 256
    waiting: Queue[tuple[str, asyncio.AbstractEventLoop, asyncio.Future[Any]]] = Queue()

    def encode() -> None:
        while True:
            batch = [waiting.get()]
            while len(batch) < BATCH and not waiting.empty():
                batch.append(waiting.get())
            vectors = model.encode([text for text, _, _ in batch], batch_size=BATCH, show_progress_bar=False)
            for (_, loop, future), vector in zip(batch, vectors, strict=True):
                loop.call_soon_threadsafe(future.set_result, vector)

    async def embed(request: Request) -> JSONResponse:
        text = (await request.json())["inputs"]
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        waiting.put((text, loop, future))
        return JSONResponse([(await future).tolist()])

    threading.Thread(target=encode, daemon=True).start()
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(128)
        print(f"http://127.0.0.1:{listening.getsockname()[1]}/", flush=True)
        app = Starlette(routes=[Route("/embed", embed, methods=["POST"])])
        uvicorn.Server(uvicorn.Config(app, log_level="critical", http="h11")).run([listening])


if __name__ == "__main__":
    main()
